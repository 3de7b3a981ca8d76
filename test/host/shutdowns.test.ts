// Shutdowns that Graphile Worker would never end. With batch delays it counts the batches that are under way, and after one
// that it could not record it counts wrongly.
import { setImmediate } from "node:timers/promises";
import test, { type ExecutionContext } from "ava";
import type { WorkerPool } from "graphile-worker";
import { definePolicy, fixed } from "../../src/index.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  partitionBy: "account",
  ahead: 50,
  backoff: fixed("10 ms"),
  gates: ({ concurrency }) => [concurrency({ max: 1, perWorker: true })],
});

/** Whoever is silent for two seconds counts as dead soon. */
const SOON_DEAD = {
  workerHeartbeatInterval: "200 ms",
  workerStaleAfter: "2 seconds",
  sweepInterval: "500 ms",
} as const;

/** The first end of a job is not recorded. */
async function refuseFirst(pool: TestWorker["pool"]): Promise<void> {
  await pool.query("create sequence ends");
  const refuse = "if nextval('ends') = 1 then raise 'refused'; end if";
  const jobs = workerTable(pool);
  await jobs.before("delete", refuse);
  await jobs.before("update", `if new.last_error is distinct from old.last_error then ${refuse}; end if`);
}

interface Case {
  /** Whether its jobs fail. */
  readonly fails?: boolean;
  /** Whether the last job does not end, and the worker is shut down by force. */
  readonly byForce?: boolean;
}

const ACCOUNTS = ["a", "b", "c", "d"];

/** Ends the jobs of a worker one after another. The end of the first is not recorded, which shuts the worker down. */
async function shutDown(t: ExecutionContext, { fails = false, byForce = false }: Case): Promise<TestWorker> {
  const ends = new Map<string, () => void>();
  const worker = await startWorker(t, {
    policies: [work],
    preset: SOON_DEAD,
    worker: { completeJobBatchDelay: 1, failJobBatchDelay: 1 },
    tasks: {
      async work(payload) {
        const { account } = payload as { account: string };
        await new Promise<void>((end) => ends.set(account, end));
        if (fails) throw new Error("on purpose");
      },
    },
  });
  const { pool, runner, utils, row } = worker;
  let going = 0;
  const follow = (promise: PromiseLike<unknown>) => {
    const ended = () => {
      going--;
    };
    going++;
    promise.then(ended, ended);
  };
  follow(runner.promise);
  const stopping: WorkerPool[] = [];
  runner.events.on("pool:gracefulShutdown", ({ workerPool }) => stopping.push(workerPool));
  await refuseFirst(pool);
  await utils.addJobs(ACCOUNTS.map((account) => ({ identifier: "work", payload: { account } })));
  await until("all run", () => ends.size === ACCOUNTS.length);
  ends.get("a")!();
  await until("the worker shuts down", () => stopping.length > 0);
  for (const [n, account] of ["b", "c"].entries()) {
    ends.get(account)!();
    await until("its end is recorded, in a batch of its own", async () => {
      const { locked } = await row(
        "select count(*)::int as locked from graphile_worker.jobs where locked_at is not null",
      );
      return locked === 3 - n && pool.idleCount === pool.totalCount; // and the worker has the answer
    });
    await setImmediate();
  }
  if (byForce) follow(Promise.resolve(stopping[0]!.forcefulShutdown("by force")));
  else ends.get("d")!();
  await until("the worker has ended", () => going === 0, { seen: () => worker.log.slice(-5) });
  ends.get("d")!();
  t.true(wentOn(worker));
  return worker;
}

/** Whether a shutdown went on without Graphile Worker. */
function wentOn({ log }: TestWorker): boolean {
  return log.some(
    ({ level, message }) =>
      level === "error" &&
      /^Graphile Worker does not end worker pool .* could not record how jobs ended/.test(message),
  );
}

for (const [what, how] of [
  ["that a job succeeded", {}],
  ["that a job failed", { fails: true }],
  ["that a job succeeded, and another one does not end", { byForce: true }],
] as const) {
  test(`a worker ends although Graphile Worker could not record ${what}: the job runs again elsewhere`, async (t) => {
    const worker = await shutDown(t, how);
    const other = await startWorker(t, {
      database: worker.database,
      policies: [work],
      preset: SOON_DEAD,
      tasks: { work: () => {} },
    });
    await until("no job is left", async () => (await worker.row("select from dispatch_policy.jobs")) == null);
    await other.everythingIsReleased();
    t.true(other.happened.some(({ payload }) => (payload as { account: string }).account === "a"));
  });
}

test("a success is recorded whose batch comes later than shutdowns wait, although a failure was not", async (t) => {
  const ends = new Map<string, () => void>();
  const worker = await startWorker(t, {
    policies: [work],
    worker: { completeJobBatchDelay: 5500, failJobBatchDelay: 1 },
    tasks: {
      async work(payload) {
        const { account } = payload as { account: string };
        await new Promise<void>((end) => ends.set(account, end));
        if (account === "a") throw new Error("on purpose");
      },
    },
  });
  const { pool, runner, utils } = worker;
  const stopping: WorkerPool[] = [];
  runner.events.on("pool:gracefulShutdown", ({ workerPool }) => stopping.push(workerPool));
  await refuseFirst(pool);
  await utils.addJobs(["a", "b"].map((account) => ({ identifier: "work", payload: { account } })));
  await until("both run", () => ends.size === 2);
  ends.get("a")!();
  await until("the worker shuts down", () => stopping.length > 0);
  ends.get("b")!();
  await runner.promise;
  t.false(wentOn(worker));
  const left = await workerTable(pool).all();
  t.deepEqual(
    left.map(({ payload }) => payload.account),
    ["a"],
  );
});
