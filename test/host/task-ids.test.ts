// Somebody removes the identifiers of tasks that Graphile Worker has no job of, while jobs of theirs are staged.
import test from "ava";
import { makeWorkerUtils, runTaskList } from "graphile-worker";
import { addPolicyJob, makePolicyUtils, wrapTaskList } from "../../src/index.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { greet } from "../helpers/policies.ts";
import { silent } from "../helpers/silent.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const ALL = {
  tasks: ["GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"] as ("GC_TASK_IDENTIFIERS" | "GC_JOB_QUEUES")[],
};
const SOON = { pollInterval: 200 };

async function plainCleanup(pgPool: Awaited<ReturnType<typeof lentDatabase>>["pool"]): Promise<void> {
  const plain = await makeWorkerUtils({ pgPool, logger: silent });
  await plain.cleanup(ALL);
  await plain.release();
}

for (const [how, worker] of [
  ["that fetches one by one", SOON],
  ["with a local queue", { ...SOON, localQueue: { size: 5 } }],
] as const) {
  test(`a worker ${how} runs what was staged, and the crontab's tick, after Graphile Worker's own cleanup`, async (t) => {
    const database = await lentDatabase(t);
    let ran = 0;
    const it = await startWorker(t, {
      ...{ database, policies: [greet], worker, preset: { sweepInterval: "1 second" } },
      tasks: { greet: async () => void ran++ },
    });
    await addPolicyJob(it.pool, greet, { name: "Ana" });
    await until("the first ran", () => ran === 1);
    await it.everythingIsReleased();
    await it.utils.pause({ policy: "greet" });
    for (let n = 0; n < 3; n++) await addPolicyJob(it.pool, greet, { name: "Ana" });
    await plainCleanup(it.pool);
    await it.utils.resume({ policy: "greet" });
    await until("the others ran", () => ran === 4);
    await plainCleanup(it.pool);
    await it.pool.query("select graphile_worker.add_job('dispatch_policy_tick')");
    await until("it ticked", async () => {
      const { rows } = await it.pool.query("select from graphile_worker.jobs");
      return rows.length === 0;
    });
    t.pass();
  });
}

test.serial(
  "a worker with wrapTaskList runs what was staged after Graphile Worker's own cleanup",
  async (t) => {
    const { pool } = await lentDatabase(t);
    const utils = await makePolicyUtils({ pgPool: pool, policies: [greet], logger: silent });
    t.teardown(() => utils.release());
    let ran = 0;
    const tasks = wrapTaskList({ greet: async () => void ran++ }, { policies: [greet] });
    const worker = runTaskList({ ...SOON, noHandleSignals: true, logger: silent }, tasks, pool);
    t.teardown(() => worker.gracefulShutdown("over"));
    await utils.addJob(greet, { name: "Ana" });
    await utils.tick();
    await until("the first ran", () => ran === 1);
    await until(
      "it ended",
      async () => (await pool.query("select from graphile_worker.jobs")).rows.length === 0,
    );
    await plainCleanup(pool);
    const { now } = performance;
    t.teardown(() => Object.assign(performance, { now }));
    performance.now = () => now.call(performance) + 30_000;
    await utils.addJob(greet, { name: "Ana" });
    await utils.tick();
    await until("the second ran", () => ran === 2);
    t.pass();
  },
);

test("a cleanup by this package's utils, which have no policy themselves, keeps the tasks of the database's", async (t) => {
  const { pool } = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: pool, policies: [greet], logger: silent });
  t.teardown(() => utils.release());
  await pool.query(`select graphile_worker.complete_jobs(array[(j).id]) from (
    select graphile_worker.add_job(task) as j from unnest(array['greet', 'dispatch_policy_tick', 'other']) task) j`);
  const others = await makePolicyUtils({ pgPool: pool, logger: silent });
  await others.cleanup(ALL);
  await others.release();
  const tasks = await workerTable(pool, "tasks").all({}, "identifier");
  t.deepEqual(
    tasks.map(({ identifier }) => identifier),
    ["dispatch_policy_tick", "greet"],
  );
});
