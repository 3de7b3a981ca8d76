// Rows with large payloads, contexts and errors are read a portion at a time, however many of them a page or a step takes.
import test, { type ExecutionContext } from "ava";
import { type AnyPolicy, concurrency, definePolicy, makePolicyUtils } from "../../src/index.ts";
import { runDueJobs } from "../../src/testing.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, workerNameOf } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

/** A portion has 8 MB, and the row that crosses the bound. */
const MOST = 9_100_000;
const JOBS = 12;
const BLOB = "x".repeat(1_000_000);
const ADD = `select count(*) from (
  select dispatch_policy.add_job('p', json_build_object('k', 'k' || n % 4, 'blob', $1::text),
    job_key => $2::text || n) from generate_series(1, ${JOBS}) n) a`;

/** Utils in a database of their own, whose pool says how many bytes each statement brought into this process. */
async function world(t: ExecutionContext, policy: AnyPolicy) {
  const { url, pool } = await testDatabase(t);
  const measured = quietPool(url);
  t.teardown(() => measured.end());
  let most = 0;
  measured.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => unknown;
    Object.assign(client, {
      query: (...args: unknown[]) => {
        const answer = query(...args);
        if (answer instanceof Promise)
          answer.then(
            ({ rows }) => {
              most = Math.max(most, JSON.stringify(rows ?? []).length);
            },
            () => {},
          );
        return answer;
      },
    });
  });
  const utils = await makePolicyUtils({ pgPool: measured, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  const add = (key: string | null = null) => pool.query(ADD, [BLOB, key]);
  return { pool, measured, utils, add, most: () => most };
}

const byPath = definePolicy("p", { partitionBy: "k", gates: [concurrency({ max: 100 })] });
const context = (payload: unknown) => payload as { k: string; blob: string };

/** What each statement wrote into a table, or took out of it: the sum of this expression over the rows. */
async function written(pool: Awaited<ReturnType<typeof world>>["pool"], event: string, bytes: string) {
  const [what, table] = event.split(" ");
  await pool.query(`create table public.written (bytes bigint);
    create function public.write() returns trigger language plpgsql as $$
      begin insert into public.written select ${bytes} from changed r; return null; end $$;
    create trigger write after ${what} on ${table} referencing ${what === "insert" ? "new" : "old"} table as changed
      for each statement execute function public.write()`);
  return async () => {
    const { rows } = await pool.query("select bytes from public.written where bytes > 0");
    return rows.map((row) => Number(row.bytes));
  };
}
const PAYLOADS = "sum(octet_length(r.payload::text))";

test("jobs whose key only JavaScript knows", async (t) => {
  const it = await world(t, definePolicy("p", { context, partitionBy: (ctx) => ctx.k }));
  await it.add();
  let admitted = 0;
  for (let i = 0; i < 5; i++) admitted += (await it.utils.tick()).admitted;
  t.is(admitted, JOBS);
  t.true(it.most() > 1_000_000 && it.most() < MOST, `${it.most()} bytes at once`);
});

test("contexts that are routed, refreshed, and worked out again", async (t) => {
  const capped = (most: number, version: number) =>
    definePolicy("p", {
      version,
      context: (payload: unknown) => payload as { k: number; blob: string; max?: number },
      partitionBy: (ctx) => String(ctx.k),
      gates: ({ concurrency }) => [concurrency({ max: (ctx) => Math.min(ctx.max ?? 0, most) })],
    });
  const it = await world(t, capped(5, 1));
  const routed = await written(it.pool, `delete ${nameOf("arrivals")}`, "sum(octet_length(r.context::text))");
  for (let k = 0; k < JOBS; k++) await it.utils.addJob("p", { k, blob: BLOB });
  await it.utils.tick();
  const batches = await routed();
  t.true(batches.length > 1);
  t.true(Math.max(...batches) < 2 * MOST, `${batches} bytes of contexts in a batch`);
  const change = { policy: "p", context: { max: 4 } };
  t.like(await it.utils.refreshContext({ ...change, dryRun: true }), { matched: JOBS, partitions: JOBS });
  t.deepEqual(await it.utils.refreshContext(change), { matched: JOBS, changed: JOBS });
  await allHave(4);
  const again = await makePolicyUtils({ pgPool: it.measured, policies: [capped(3, 2)], logger: silent });
  t.teardown(() => again.release());
  await again.tick(); // it declares its definition
  await allHave(3);
  t.true(it.most() > 1_000_000 && it.most() < MOST, `${it.most()} bytes at once`);

  function allHave(max: number) {
    return until(`the limits are ${max}`, async () => {
      await it.utils.tick();
      const { rows } = await it.pool.query(
        "select min(max), max(max) from dispatch_policy.limiters where gate = 'concurrency'",
      );
      return rows[0].min === max && rows[0].max === max;
    });
  }
});

for (const kind of ["plain jobs", "jobs with keys"]) {
  test(`an admission of ${kind}`, async (t) => {
    const it = await world(t, byPath);
    await it.utils.pause({ policy: "p" });
    await it.add(kind === "jobs with keys" ? "key" : null);
    const added = await written(it.pool, `insert ${workerNameOf()}`, PAYLOADS);
    await it.utils.resume({ policy: "p" });
    t.is((await it.utils.tick()).admitted, JOBS);
    t.true(Math.max(...(await added())) < MOST);
  });
}

test("jobs that are unstaged", async (t) => {
  const it = await world(t, byPath);
  await it.utils.pause({ policy: "p" });
  await it.add();
  await it.utils.disable({ policy: "p" });
  const added = await written(it.pool, `insert ${workerNameOf()}`, PAYLOADS);
  t.is((await it.utils.unstage({ policy: "p" })).changed, JOBS);
  t.true(Math.max(...(await added())) < MOST);
});

test("failed jobs that are exported, and retried", async (t) => {
  const it = await world(t, byPath);
  await it.add();
  const fail = async () => {
    throw new Error("down");
  };
  await runDueJobs({ pgPool: it.pool, policies: [byPath], taskList: { p: fail } });
  const exported: string[] = [];
  for await (const { id } of it.utils.export({ policy: "p" })) exported.push(id);
  t.is(new Set(exported).size, JOBS);
  t.true(it.most() > 1_000_000 && it.most() < MOST, `${it.most()} bytes at once`);
  const ids = (await it.pool.query("select id from graphile_worker.jobs order by id")).rows.map(
    ({ id }) => id,
  );
  t.is((await it.utils.permanentlyFailJobs(ids, "no more")).length, JOBS);
  const { rows } = await it.pool.query("select * from dispatch_policy.retry(policy => 'p')");
  t.deepEqual(rows, [{ matched: JOBS, changed: 8 }]);
  t.deepEqual(await it.utils.retry({ policy: "p" }), { matched: JOBS - 8, changed: JOBS - 8 });
  t.is((await it.utils.tick()).admitted, JOBS);
});
