// Whoever adds a job stages it if its task has a policy in the database, also in a process that does not have the policy.
import test, { type ExecutionContext } from "ava";
import { runMigrations } from "graphile-worker";
import {
  type AddedJob,
  addJobAdhoc,
  addPolicyJob,
  addPolicyJobs,
  BacklogFullError,
  definePolicy,
  makePolicyUtils,
  PayloadError,
  quickAddJob,
  SchemaVersionError,
} from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

/** Its key needs JavaScript. */
const shout = definePolicy("shout", {
  context: (payload: unknown) => ({ name: String((payload as { name?: unknown }).name).toUpperCase() }),
  partitionBy: (ctx) => ctx.name,
});
const bounded = definePolicy("bounded", { partitionBy: "name", maxPending: { partition: 1 } });

/** A database in which another process has declared the policies, and utils that know none. */
async function world(t: ExecutionContext) {
  const database = await testDatabase(t);
  const options = { connectionString: database.url, logger: silent };
  const knowing = await makePolicyUtils({ ...options, policies: [greet, shout, bounded] });
  const unknowing = await makePolicyUtils(options);
  t.teardown(() => Promise.all([knowing.release(), unknowing.release()]));
  const native = async () =>
    (
      await database.pool.query("select task_identifier as task from graphile_worker.jobs order by id")
    ).rows.map(({ task }) => task);
  return { ...database, options, knowing, unknowing, native };
}

const placeOf = (job: AddedJob) => (job.staged ? [job.policy, job.partition] : null);

for (const [name, add] of Object.entries({ quickAddJob, addJobAdhoc })) {
  test(`${name} stages a job whose policy only the database knows, and passes on one without`, async (t) => {
    const { options, native, pool } = await world(t);
    t.deepEqual(placeOf(await add(options, "greet", { name: "Ana" })), ["greet", "Ana"]);
    t.deepEqual(placeOf(await add(options, "shout", { name: "Ana" })), ["shout", null]);
    t.is(placeOf(await add(options, "plain", { name: "Ana" })), null);
    t.deepEqual(await native(), ["plain"]);
    const { rows } = await pool.query(
      "select task_identifier, payload from dispatch_policy.staged_jobs order by id",
    );
    t.deepEqual(rows, [
      { task_identifier: "greet", payload: { name: "Ana" } },
      { task_identifier: "shout", payload: { name: "Ana" } },
    ]);
  });

  test(`${name} with the policy stages too, and sets up an empty database first, as Graphile Worker's does`, async (t) => {
    const { url, pool } = await testDatabase(t, { migrated: false });
    const options = { connectionString: url, policies: [greet], logger: silent };
    t.deepEqual(placeOf(await add(options, "greet", { name: "Ana" })), ["greet", "Ana"]);
    t.is((await pool.query("select from dispatch_policy.staged_jobs")).rows.length, 1);
  });
}

test("utils.addJobs: a call of all kinds of tasks keeps its order", async (t) => {
  const { unknowing, native } = await world(t);
  const tasks = ["plain", "greet", "shout", "other", "greet"];
  const jobs = tasks.map((identifier, n) => ({ identifier, payload: { name: `N${n}`, n } }));
  const added = await unknowing.addJobs(jobs);
  t.deepEqual(
    added.map((job) => [job.task_identifier, placeOf(job), (job.payload as { n: number }).n]),
    [
      ["plain", null, 0],
      ["greet", ["greet", "N1"], 1],
      ["shout", ["shout", null], 2],
      ["other", null, 3],
      ["greet", ["greet", "N4"], 4],
    ],
  );
  t.deepEqual(await native(), ["plain", "other"]);
});

test("helpers.addJob stages in a worker that does not have the policy", async (t) => {
  const database = await testDatabase(t);
  const knowing = await makePolicyUtils({ pgPool: database.pool, policies: [greet], logger: silent });
  t.teardown(() => knowing.release());
  let added: AddedJob | undefined;
  const worker = await startWorker(t, {
    database,
    policies: [],
    tasks: {
      parent: async (_, helpers) => {
        added = (await helpers.addJob("greet", { name: "Ana" })) as AddedJob;
      },
    },
  });
  await worker.utils.addJob("parent", {});
  await worker.sees("job:success");
  t.deepEqual(placeOf(added as AddedJob), ["greet", "Ana"]);
});

test("a key that needs JavaScript is worked out by a tick of a process that has the policy", async (t) => {
  const { unknowing, knowing, pool } = await world(t);
  await unknowing.addJob("shout", { name: "Ana" });
  const waiting = async () =>
    (await pool.query("select partition, reason from dispatch_policy.staged_jobs")).rows;
  t.deepEqual(await waiting(), [{ partition: null, reason: "waiting_key" }]);
  await unknowing.tick();
  t.deepEqual(await waiting(), [{ partition: null, reason: "waiting_key" }]);
  t.is((await knowing.tick()).admitted, 1);
  t.deepEqual(
    (await knowing.partitions({ policy: "shout" })).map(({ partition }) => partition),
    ["ANA"],
  );
});

test("a job key replaces, dedupes and moves between tasks, whoever knows the policy", async (t) => {
  const { unknowing, knowing, native, pool } = await world(t);
  const first = await unknowing.addJob("greet", { name: "Ana" }, { jobKey: "k" });
  const second = await knowing.addJob("greet", { name: "Bo" }, { jobKey: "k" });
  const third = await unknowing.addJob("greet", { name: "Cy" }, { jobKey: "k", jobKeyMode: "unsafe_dedupe" });
  t.deepEqual(
    [first.id, second.id, third.id].map((id) => id === first.id),
    [true, true, true],
  );
  await unknowing.addJob("plain", {}, { jobKey: "k" });
  t.deepEqual(await native(), ["plain"]);
  t.is((await pool.query("select from dispatch_policy.staged_jobs")).rows.length, 0);
});

test("what SQL refuses is this package's error, and none of the call's jobs is added", async (t) => {
  const { unknowing, native, pool } = await world(t);
  const withPlain = (identifier: string, payload: object) =>
    unknowing.addJobs([
      { identifier: "plain", payload: {} },
      { identifier, payload },
    ]);
  const refused = await t.throwsAsync(withPlain("greet", { nam: "Ana" }), { instanceOf: PayloadError });
  t.is(refused.policy, "greet");
  t.is(
    refused.message,
    'policy "greet": the payload of greet has no string or number at partitionBy path name',
  );
  await unknowing.addJob("bounded", { name: "Ana" });
  await t.throwsAsync(withPlain("bounded", { name: "Ana" }), { instanceOf: BacklogFullError });
  await t.throwsAsync(unknowing.addJob("greet", { name: "x".repeat(2000) }), { code: "invalid_argument" });
  t.deepEqual(await native(), []);
  t.is((await pool.query("select from dispatch_policy.staged_jobs")).rows.length, 1);
});

test("a policy that is switched off passes its jobs on", async (t) => {
  const { unknowing, knowing, native } = await world(t);
  await knowing.disable({ policy: "greet" });
  t.false((await unknowing.addJob("greet", { name: "Ana" })).staged);
  t.deepEqual(await native(), ["greet"]);
});

test("addPolicyJob before the first set-up says how to set up, and changes nothing", async (t) => {
  const { pool, url } = await testDatabase(t, { migrated: false });
  await runMigrations({ pgPool: pool, logger: silent });
  for (const add of [
    () => addPolicyJob(pool, greet, { name: "Ana" }),
    () => addPolicyJobs(pool, [{ policy: greet, payload: { name: "Ana" } }]),
  ]) {
    const error = await t.throwsAsync(add, { instanceOf: SchemaVersionError });
    t.regex(error.message, /schema "dispatch_policy" has not been set up.*migrate/);
    t.is((error.cause as { code?: string }).code, "3F000");
  }
  const utils = await makePolicyUtils({ connectionString: url, policies: [greet], logger: silent });
  t.teardown(() => utils.release());
  const added = await until("it is added", () => addPolicyJob(pool, greet, { name: "Ana" }));
  t.is(added.partition, "Ana");
});

test("a part that the database lacks is the schema's age, and a name that the application lacks is not", async (t) => {
  const { pool } = await testDatabase(t);
  const takeBack = await table(pool, "staged_jobs").before("insert", "perform public.nowhere()");
  await t.throwsAsync(addPolicyJob(pool, greet, { name: "Ana" }), {
    code: "42883",
    message: /public\.nowhere/,
  });
  await takeBack();
  await pool.query("drop function dispatch_policy_internal._notify");
  await t.throwsAsync(addPolicyJob(pool, greet, { name: "Ana" }), {
    instanceOf: SchemaVersionError,
    message: /\(function _notify\(.*does not exist\)/,
  });
  await pool.query("drop function dispatch_policy.enqueue");
  await t.throwsAsync(addPolicyJob(pool, greet, { name: "Ana" }), {
    instanceOf: SchemaVersionError,
    message: /\(function dispatch_policy\.enqueue\(.*does not exist\)/,
  });
});
