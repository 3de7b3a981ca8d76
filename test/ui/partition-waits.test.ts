// How long the jobs of each partition waited, and when: as the history has it, on the page of the policy and on that of the partition.
import test from "ava";
import type pg from "pg";
import { concurrency, definePolicy } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { engine } from "../helpers/engine.ts";
import { table } from "../helpers/table.ts";
import { startWorker } from "../helpers/worker.ts";
import { cellsOf, HERE } from "./world.ts";

const options = { partitionBy: "k", gates: [concurrency({ max: 1 })] } as const;
const kept = definePolicy("kept", { ...options, history: { keep: "7 days" } });
const forgotten = definePolicy("forgotten", options);
const gateless = definePolicy("gateless", { partitionBy: "k", history: { keep: "7 days" } });
const HEADING = "Partitions that waited for longest";

interface Wait {
  readonly partition: string | null;
  readonly jobs: number;
  readonly p95_seconds: number | null;
  readonly longest_seconds: number | null;
  readonly steps: readonly (number | null)[];
}

const waitsOf = async (pool: pg.Pool, more = "") =>
  (
    await pool.query<Wait>(
      `select * from dispatch_policy.partition_waits('kept', now() - interval '1 hour', '1 minute'${more})`,
    )
  ).rows;

async function pageOf(pool: pg.Pool, path: string): Promise<string> {
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  return (await ui(new Request(HERE + path))).text();
}

test("the waits are those of the history: in all, of the worst partitions, and of the one that is asked for", async (t) => {
  const { pool, utils, sees, everythingIsReleased } = await startWorker(t, {
    policies: [kept, gateless],
    tasks: { kept: async () => {}, gateless: async () => {} },
  });
  const keys = ["a", "a", "a", "b", "c"];
  await utils.addJobs(keys.map((k) => ({ identifier: "kept", payload: { k } })));
  await utils.addJob("gateless", { k: "only" });
  await sees("job:success", keys.length + 1);
  await everythingIsReleased();
  const { rows } = await pool.query<{ partition: string; seconds: number }>(
    `select partition, extract(epoch from admitted_at - due_at)::float8 as seconds from dispatch_policy.history
     where policy = 'kept'`,
  );
  const waits = await waitsOf(pool);
  t.deepEqual(waits.map(({ partition }) => partition ?? "").toSorted(), ["", "a", "b", "c"]);
  t.is(waits[0]!.partition, null);
  for (const { partition, jobs, p95_seconds, longest_seconds, steps } of waits) {
    const its = rows.filter((row) => partition === null || row.partition === partition);
    const seconds = its.map((row) => row.seconds);
    t.is(jobs, its.length, `${partition}`);
    t.is(longest_seconds, Math.max(...seconds), `${partition}`);
    t.true(p95_seconds! <= longest_seconds! && p95_seconds! >= Math.min(...seconds), `${partition}`);
    t.is(steps.length, 61, "the step in which the hour began among them");
    const drawn = steps.filter((step) => step !== null);
    t.true(drawn.length >= 1 && Math.max(...drawn) >= p95_seconds! - 1e-6, `${partition}: ${drawn}`);
  }
  const worst = waits.slice(1).map(({ p95_seconds }) => p95_seconds!);
  t.deepEqual(
    worst,
    worst.toSorted((one, other) => other - one),
  );
  t.deepEqual(
    (await waitsOf(pool, ", 'b'")).map(({ partition }) => partition),
    [null, "b"],
  );

  const page = await pageOf(pool, "/policy?policy=kept");
  const cells = cellsOf(page, HEADING);
  t.deepEqual(
    cells.map(([partition, , , , jobs]) => [partition, jobs]),
    [...waits.slice(1), waits[0]!].map(({ partition, jobs }) => [partition ?? "all", String(jobs)]),
  );
  t.is(page.match(/<svg class="spark"[^>]* aria-label="95 % waited at most/g)?.length, waits.length);
  t.is(cellsOf(await pageOf(pool, "/policy?policy=gateless"), HEADING).length, 2);
  const own = await pageOf(pool, "/partition?policy=kept&partition=a&period=6h");
  t.regex(own, /<h2>How long its jobs waited, in the last 6 hours<\/h2>/);
  t.regex(own, /<dt>jobs that ended<\/dt><dd>3 <span class="quiet">\(of 5,/);

  await table(pool, "partitions").remove({ key: "a" }); // as sweeps do with unused ones
  const [, link] = /href="([^"]*)">a<\/a>/.exec(await pageOf(pool, "/policy?policy=kept")) ?? [];
  const gone = await pageOf(pool, link!.replaceAll("&amp;", "&"));
  t.regex(gone, /A sweep has deleted the partition.*<dt>jobs that ended<\/dt><dd>3 /s);
  t.regex(await pageOf(pool, "/partition?policy=kept&partition=nobody"), /There is no such/);
});

test("without a history both pages say what to switch on", async (t) => {
  const { pool, utils, sees } = await startWorker(t, {
    policies: [forgotten],
    tasks: { forgotten: async () => {} },
  });
  await utils.addJob("forgotten", { k: "a" });
  await sees("job:success", 1);
  for (const path of ["/policy?policy=forgotten", "/partition?policy=forgotten&partition=a"]) {
    const page = await pageOf(pool, path);
    t.regex(page, /is not recorded\. To know it, .*<code>history: { keep: "7 days" }<\/code>/, path);
    t.notRegex(page, new RegExp(HEADING));
  }
});

test("it reads the last 10,000 jobs that ended, ten partitions are shown, and each step has its own", async (t) => {
  const it = await engine(t, { gates: [] });
  const policies = it.table("policies");
  await policies.set({ history_kept_for: 86400 });
  const { id } = await policies.one();
  const client = await it.session();
  await client.query("begin"); // no minute ends in it
  const at = () =>
    "date_trunc('minute', now()) - case when n <= 6000 then 5 else 9 end * interval '1 minute'";
  await it.table("history", client).add(
    {
      ...{ staged_id: () => "n", policy_id: id, partition: () => "'k' || n % 20" },
      due_at: () => `${at()} - n % 20 * interval '1 second'`,
      ...{ admitted_at: at, ended_at: at, outcome: "succeeded" },
    },
    12_000,
  );
  const { rows } = await client.query<Wait>(
    "select * from dispatch_policy.partition_waits('p', now() - interval '1 hour', '1 minute')",
  );
  t.deepEqual(
    rows.map(({ partition, jobs }) => [partition, jobs]),
    [[null, 10_000], ...Array.from({ length: 10 }, (_, n) => [`k${19 - n}`, 500])],
  );
  const [, k19] = rows;
  t.is(k19!.p95_seconds, 19);
  t.deepEqual(
    k19!.steps.flatMap((step, n) => (step === null ? [] : [[k19!.steps.length - 1 - n, step]])),
    [
      [9, 19],
      [5, 19],
    ],
  );
  const [none] = (
    await client.query<Wait>("select * from dispatch_policy.partition_waits('p', now(), '1 minute')")
  ).rows;
  t.like(none, { partition: null, jobs: 0, p95_seconds: null });
});
