// A worker with wrapTaskList alone: no preset, no loop, nobody else who declares its policies.
import test, { type ExecutionContext } from "ava";
import { Logger, runTaskList, type TaskList } from "graphile-worker";
import {
  type AnyPolicy,
  addPolicyJob,
  concurrency,
  definePolicy,
  makePolicyUtils,
  RetryAfter,
  wrapTaskList,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";

const TICK = "dispatch_policy_tick";
const greet = definePolicy("greet", { partitionBy: "name", gates: [concurrency({ max: 1 })] });
const shout = definePolicy("shout", {
  context: (payload: unknown) => ({ name: String((payload as { name: unknown }).name).toUpperCase() }),
  partitionBy: (ctx) => ctx.name,
});

async function world(
  t: ExecutionContext,
  policies: readonly AnyPolicy[] = [greet, shout],
  more: TaskList = {},
) {
  const database = await testDatabase(t);
  const ran: string[] = [];
  const warnings: string[] = [];
  const logger = new Logger(() => (level, message) => {
    if (level === "warning") warnings.push(message);
  });
  const work = async (payload: unknown) => void ran.push((payload as { name: string }).name);
  const start = (concurrency = 1) => {
    const pool = quietPool(database.url);
    const tasks = wrapTaskList({ greet: work, shout: work, ...more }, { policies });
    const shared = { noHandleSignals: true, logger, pollInterval: 50, gracefulShutdownAbortTimeout: 100 };
    const workers = runTaskList({ ...shared, concurrency }, tasks, pool);
    let stopping: Promise<void> | undefined;
    const stop = () => {
      stopping ??= Promise.resolve(workers.gracefulShutdown()).then(() => pool.end());
      return stopping;
    };
    t.teardown(stop);
    return { stop };
  };
  /** As the crontab adds it. */
  const tick = () => database.pool.query("select graphile_worker.add_job($1)", [TICK]);
  const declared = async () =>
    (await database.pool.query("select policy from dispatch_policy.policies order by 1")).rows.map(
      ({ policy }) => policy,
    );
  return { ...database, ran, warnings, start, tick, declared };
}

test("the crontab's tick declares the policies, and runs what is staged", async (t) => {
  const { pool, ran, start, tick, declared } = await world(t);
  await addPolicyJob(pool, greet, { name: "Ana" });
  start();
  t.deepEqual(await declared(), []);
  await tick();
  await until("the staged job runs", () => ran.length === 1);
  t.deepEqual(await declared(), ["greet", "shout"]);
  // SQL knows the policies now, and their functions run here
  await pool.query(`select dispatch_policy.add_job('shout', '{"name": "Bo"}')`);
  await tick();
  await until("the job from SQL runs", () => ran.length === 2);
  t.deepEqual(ran, ["Ana", "Bo"]);
});

test("a tick with `for` hears of what is added and of what ends", async (t) => {
  const { pool, ran, start } = await world(t);
  start(2);
  await pool.query("select graphile_worker.add_job($1, $2)", [TICK, { for: "1 hour" }]);
  await until("it listens", async () => {
    const { rowCount } = await pool.query(
      "select from pg_stat_activity where datname = current_database() and query = 'listen dispatch_policy'",
    );
    return rowCount === 1;
  });
  for (let n = 0; n < 20; n++) await addPolicyJob(pool, greet, { name: "Ana" });
  await until("all ran", () => ran.length === 20);
  await until("nothing is left but the task itself, which goes on", async () => {
    const { rows } = await pool.query("select task_identifier as task from graphile_worker.jobs");
    return rows.length === 1 && rows[0].task === TICK;
  });
  t.is(ran.length, 20);
});

test("the first job of a policy's task declares them too, before its limits are asked for", async (t) => {
  const { pool, ran, start, declared } = await world(t);
  start();
  await pool.query(`select graphile_worker.add_job('greet', '{"name": "Ana"}')`);
  await until("it runs", () => ran.length === 1);
  t.deepEqual(await declared(), ["greet", "shout"]);
  const { rows } = await pool.query("select count(*)::int as n from dispatch_policy.staged_jobs");
  t.is(rows[0].n, 0, "with a declared policy it is admitted on the spot");
});

test("a job without a policy neither waits for the declaration nor fails with it, and the next job tries again", async (t) => {
  let plain = 0;
  const { pool, ran, warnings, start, declared } = await world(t, [greet], {
    plain: async () => void plain++,
  });
  await pool.query("alter function dispatch_policy_internal._declare_policy rename to _declare_policy_later");
  start();
  await pool.query("select graphile_worker.add_job('plain')");
  await until("the plain job runs", () => plain === 1);
  await until("the failure is logged", () =>
    warnings.some((line) => /^Cannot declare the policies, trying again at the next job/.test(line)),
  );
  await pool.query("alter function dispatch_policy_internal._declare_policy_later rename to _declare_policy");
  await pool.query("select graphile_worker.add_job('plain')");
  await until("the next one declares", async () => (await declared()).length === 1);
  await pool.query(`select graphile_worker.add_job('greet', '{"name": "Ana"}')`);
  await until("it runs", () => ran.length === 1);
  t.deepEqual(ran, ["Ana"]);
});

test("it declares once, and leaves the settings that a worker with the preset declared", async (t) => {
  const { pool, ran, start, tick } = await world(t, [greet]);
  const utils = await makePolicyUtils({
    pgPool: pool,
    logger: silent,
    preset: { dispatchPolicy: { policies: [greet], defaults: { admissionBatchSize: 7 } } },
  });
  t.teardown(() => utils.release());
  const row = async () => (await pool.query(`select batch_size, xmin from ${nameOf("policies")}`)).rows[0];
  start();
  await utils.addJob("greet", { name: "Ana" });
  await tick();
  await until("it runs", () => ran.length === 1);
  const after = await row();
  t.is(after.batch_size, 7);
  await utils.addJob("greet", { name: "Bo" });
  await tick();
  await until("the second runs", () => ran.length === 2);
  t.is((await row()).xmin, after.xmin);
});

test("a cancelled job whose run was cut short does not start again", async (t) => {
  const { pool, ran, start } = await world(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [greet], logger: silent });
  t.teardown(() => utils.release());
  await utils.addJob(greet, { name: "Ana" });
  await utils.tick({ policy: "greet" });
  const jobs = workerTable(pool);
  await jobs.set({ locked_at: new Date(), locked_by: "gone", attempts: 1 });
  t.is((await utils.cancel({ policy: "greet", by: "ana" })).running, 1);
  await jobs.set({ locked_at: null, locked_by: null });
  start();
  await until("its slot is back", async () => {
    const { rows } = await pool.query("select from dispatch_policy.in_flight_jobs");
    return rows.length === 0;
  });
  const { rows } = await pool.query(
    "select last_error, attempts >= max_attempts as ended from graphile_worker.jobs where last_error is not null",
  );
  t.deepEqual([rows, ran], [[{ last_error: "job 1 was cancelled by ana", ended: true }], []]);
});

test("backoff gets the errors of a batch's parts, and RetryAfter of one holds the partition", async (t) => {
  const seen: unknown[] = [];
  const batch = definePolicy("batch", {
    partitionBy: "0.name",
    backoff: (error) => {
      seen.push(error);
      return "1 hour";
    },
  });
  const refusal = new RetryAfter("1 hour", { reason: "429" });
  const parts = async (payload: unknown) => {
    const [{ name }] = payload as [{ name: string }];
    return [Promise.reject(name === "Ana" ? new Error("its own fault") : refusal)];
  };
  const { pool, start, tick } = await world(t, [batch], { batch: parts });
  for (const name of ["Ana", "Bo"]) await addPolicyJob(pool, batch, [{ name }]);
  start();
  await tick();
  const held = "select partition from dispatch_policy.partitions where held_until > now()";
  await until("both wait for their retries", async () => {
    const { rows } = await pool.query("select from dispatch_policy.staged_jobs where job_id is not null");
    return rows.length === 2;
  });
  t.deepEqual((await pool.query(held)).rows, [{ partition: "Bo" }]);
  t.deepEqual(
    (seen as AggregateError[]).map(({ errors }) => errors[0].message),
    ["its own fault"],
  );
});
