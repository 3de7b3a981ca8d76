// How long jobs waited, said in five places. A judge outside knows it, because it has made each job as old as it was.
import test, { type ExecutionContext } from "ava";
import type pg from "pg";
import { definePolicy, makePolicyUtils, type PolicyUtils } from "../../src/index.ts";
import { createUi } from "../../src/ui/ui.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { startWorker } from "../helpers/worker.ts";
import { cellsOf, HERE } from "./world.ts";

const options = { partitionBy: "k", history: { keep: "7 days" } } as const;
/** Seconds that its jobs have waited when a worker starts. `slow` has few jobs, and they have waited for longest. */
const WAITS: Readonly<Record<string, readonly number[]>> = {
  quick: Array.from({ length: 60 }, (_, n) => 20 + n / 10),
  usual: [90, 120, 180, 300, 450, 600, 900, 1200].flatMap((seconds) =>
    [0, 1, 2, 3].map((more) => seconds + more),
  ),
  slow: [3600, 3600, 3600, 7300],
};
const POLICIES = Object.keys(WAITS).map((name) => definePolicy(name, options));
/** How wide a bucket is from its middle, and that pages cut what is smaller than their second unit. */
const RESOLUTION = 0.05;
const UNITS: Readonly<Record<string, number>> = { d: 86_400, h: 3600, min: 60, s: 1 };

interface Judged {
  readonly p50: number;
  readonly p95: number;
  readonly longest: number;
}

/** The least wait that so large a share of the jobs does not exceed. */
function judge(waits: readonly number[]): Judged {
  const ascending = waits.toSorted((a, b) => a - b);
  const at = (share: number) => ascending[Math.ceil(share * ascending.length) - 1] as number;
  return { p50: at(0.5), p95: at(0.95), longest: at(1) };
}

/** What a page says, "1 min 44 s", as the seconds between which it lies. */
function secondsOf(text: string): readonly [least: number, most: number] {
  const parts = [...text.matchAll(/([\d.]+) (d|h|min|s)\b/g)].map(
    ([, count, unit]) => [Number(count), UNITS[unit!]!] as const,
  );
  const least = parts.reduce((sum, [count, size]) => sum + count * size, 0);
  return [least, least + (parts.at(-1)?.[1] ?? 0)];
}

/** The jobs have waited up to `more` seconds longer than the judge has said: until the worker had admitted them. */
function judging(t: ExecutionContext, more: number) {
  const within = (least: number, most: number, exact: number, resolution: number, what: string) =>
    t.true(
      most >= exact * (1 - resolution) && least <= (exact + more) * (1 + resolution),
      `${what}: ${least} to ${most} s, exactly ${exact} to ${exact + more} s`,
    );
  return {
    number: (found: number, exact: number, what: string, resolution = RESOLUTION) =>
      within(found, found, exact, resolution, what),
    text: (found: string | undefined, exact: number, what: string, resolution = RESOLUTION) => {
      t.regex(found ?? "", /^[\d.]+ (?:d|h|min|s)/, what);
      within(...secondsOf(found ?? ""), exact, resolution, what);
    },
  };
}

/** Adds the jobs, each as old as it has waited. Nobody admits them yet. */
async function addOld(utils: PolicyUtils, pool: pg.Pool, now: Date): Promise<void> {
  for (const [identifier, waits] of Object.entries(WAITS))
    await utils.addJobs(
      waits.map((seconds, n) => {
        const runAt = new Date(now.getTime() - seconds * 1000);
        return { identifier, payload: { k: `k${n % 7}` }, runAt };
      }),
    );
  await table(pool, "staged_jobs").set({ created_at: () => "run_at" });
}

test("cards, charts, tables, metrics and the history agree with the judge on how long jobs waited", async (t) => {
  const database = await lentDatabase(t);
  const { pool } = database;
  const before = await makePolicyUtils({ pgPool: pool, policies: POLICIES, logger: silent });
  const now = new Date();
  await addOld(before, pool, now);
  await before.release();
  const { utils, sees, everythingIsReleased } = await startWorker(t, {
    ...{ database, policies: POLICIES },
    tasks: Object.fromEntries(Object.keys(WAITS).map((name) => [name, async () => {}])),
  });
  const count = Object.values(WAITS).flat().length;
  await sees("job:success", count);
  const is = judging(t, (Date.now() - now.getTime()) / 1000);
  await everythingIsReleased();
  await utils.sweep();

  const metrics = await utils.metrics();
  const metric = (policy: string, quantile: string) => {
    const name = `dispatch_policy_wait_seconds{policy="${policy}",quantile="${quantile}"} `;
    return Number(
      metrics
        .split("\n")
        .find((line) => line.startsWith(name))
        ?.slice(name.length),
    );
  };
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const text = async (path: string) => (await ui(new Request(HERE + path))).text();

  for (const [policy, waits] of Object.entries(WAITS)) {
    const { p50, p95, longest } = judge(waits);
    is.number(metric(policy, "0.5"), p50, `metric of ${policy}, half`);
    is.number(metric(policy, "0.95"), p95, `metric of ${policy}, 95 %`);
    is.number(metric(policy, "1"), longest, `metric of ${policy}, longest`, 0);
    t.true(metric(policy, "0.95") <= metric(policy, "1"));
    const { rows } = await pool.query<{ seconds: number }>(
      "select extract(epoch from admitted_at - due_at)::float8 as seconds from dispatch_policy.history where policy = $1",
      [policy],
    );
    const kept = judge(rows.map(({ seconds }) => seconds));
    is.number(kept.p95, p95, `history of ${policy}, 95 %`, 0);
    is.number(kept.longest, longest, `history of ${policy}, longest`, 0);
    const page = await text(`/policy?policy=${policy}`);
    const [, most, most2] = cellsOf(page, "Partitions that waited for longest").at(-1)!;
    is.text(most, p95, `${policy}'s partitions, 95 %`, 0);
    is.text(most2, longest, `${policy}'s partitions, longest`, 0);
    // if they went in two minutes, each has quantiles of its own
    const steps = cellsOf(page, "The last hour")
      .map((cells) => cells[6]!)
      .filter((cell) => cell !== "–");
    if (steps.length === 1) is.text(steps[0], p95, `chart of ${policy}`);
    else t.true(steps.length > 1);
  }

  const all = judge(Object.values(WAITS).flat());
  t.true(all.p95 < judge(WAITS.slow!).p95, "the worst policy's own is another number");
  for (const [period, words] of [
    ["1h", "hour"],
    ["6h", "6 hours"],
    ["24h", "24 hours"],
    ["7d", "7 days"],
  ]) {
    const page = await text(`/?period=${period}`);
    const [, value, half, longest] =
      /<dt>from due to admitted, 95\u00a0%<\/dt><dd>([^<]*)<small>half ([^,]*), longest ([^<]*)</.exec(
        page,
      ) ?? [];
    is.text(value, all.p95, `card, ${period}`);
    is.text(half, all.p50, `card, half, ${period}`);
    is.text(longest, all.longest, `card, longest, ${period}`, 0);
    const steps = cellsOf(page, `The last ${words}`)
      .map((cells) => cells[6]!)
      .filter((cell) => cell !== "–");
    if (steps.length === 1) t.is(steps[0], value, `the chart below the card, ${period}`);
    const [, most] = /From due to admitted, 95 % <span class="quiet">at most ([^<]*)</.exec(page) ?? [];
    t.true(secondsOf(most!)[1] >= secondsOf(value!)[0], "the highest bar is not below the card");
  }
});

test("the oldest due job is named with its age and a link, of each policy and of all", async (t) => {
  const { pool } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: POLICIES, logger: silent });
  t.teardown(() => utils.release());
  const ui = createUi({ pool, authorize: () => ({ name: "ana", role: "viewer" }) });
  const text = async (path: string) => (await ui(new Request(HERE + path))).text();
  t.regex(await text("/"), /<strong>–<\/strong><span>oldest due job<\/span><small>none is due</);
  await utils.pause({ all: true, reason: "so that all of them wait" });
  await addOld(utils, pool, new Date());
  await utils.tick();
  const { rows } = await pool.query<{ id: string; policy: string; partition: string }>(
    `select distinct on (policy) id, policy, partition from dispatch_policy.staged_jobs order by policy, created_at`,
  );
  const { policies, oldestDue } = await utils.status();
  for (const { id, policy, partition } of rows) {
    const longest = judge(WAITS[policy]!).longest;
    const found = policies.find((one) => one.policy === policy)!.oldestDue!;
    t.like(found, { id, policy, partition });
    t.true(found.ageSeconds >= longest && found.ageSeconds < longest + 60, policy);
    const page = await text(`/policy?policy=${policy}`);
    t.true(
      page.includes(
        `<span><a href="/job?id=${found.id}">oldest due job</a></span><small>${found.id} of ${partition}, ${policy}</small>`,
      ),
      page,
    );
  }
  t.like(oldestDue, { policy: "slow", id: rows.find(({ policy }) => policy === "slow")!.id });
  for (const path of ["/", "/policies"])
    for (const { oldestDue: its } of policies)
      t.regex(await text(path), new RegExp(`class="number"><a href="/job\\?id=${its!.id}">`), path);
  const page = await text("/");
  t.regex(
    page,
    new RegExp(
      `<strong>2 h 1 min</strong><span><a href="/job\\?id=${oldestDue!.id}">oldest due job</a></span><small>${oldestDue!.id} of k3, slow<`,
    ),
  );
  const waiting = cellsOf(page, "Waiting for longest");
  t.deepEqual(waiting[0]?.slice(0, 2), ["slow", "k3"]);
});
