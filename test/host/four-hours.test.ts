// Graphile Worker gives locks up after four hours, also those of a pool that lives and runs the job.
import test, { type ExecutionContext } from "ava";
import { concurrency, definePolicy } from "../../src/index.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const policy = definePolicy("long", { partitionBy: "account", gates: [concurrency({ max: 1 })] });
const SAID = /was unlocked while another worker runs it/;

/** Two workers, one job of two that runs, and its lock is given up. `end` ends the runs that wait. */
async function unlocked(t: ExecutionContext, fails = false) {
  const database = await lentDatabase(t);
  const starts: string[] = [];
  const over = Promise.withResolvers<void>();
  const tasks = {
    long: async (_: unknown, { job }: { job: { id: string; attempts: number } }) => {
      starts.push(`${job.id} ${job.attempts}`);
      if (starts.length > 1) return;
      await over.promise;
      if (fails) throw new Error("it failed at last");
    },
  };
  const start = () =>
    startWorker(t, { database, policies: [policy], tasks: tasks as never, worker: { concurrentJobs: 1 } });
  const workers = [await start(), await start()];
  t.teardown(() => over.resolve());
  await workers[0]!.utils.addJobs(
    [1, 2].map(() => ({ identifier: "long", payload: { account: "a" } })) as never,
  );
  await until("the first runs", () => starts.length === 1);
  // as its own statement does after four hours: the job is available again
  const isLocked = { locked_at: (its: string) => `${its} is not null` };
  await workerTable(database.pool).set({ locked_at: null, locked_by: null }, isLocked);
  await database.pool.query("select pg_notify('jobs:insert', '{}')");
  const log = () => workers.flatMap((worker) => worker.log.map(({ message }) => message));
  await until("the second attempt waits", () => log().some((message) => SAID.test(message)));
  return { workers, starts, log, end: over.resolve };
}

test("the next attempt waits while the first runs, and then has nothing to do", async (t) => {
  const { workers, starts, log, end } = await unlocked(t);
  t.is(starts.length, 1);
  end();
  await workers[0]!.everythingIsReleased();
  await until("both jobs are gone", async () => {
    return (await workers[0]!.row("select count(*)::int as n from dispatch_policy.jobs")).n === 0;
  });
  t.deepEqual(new Set(starts.map((one) => one.split(" ")[1])), new Set(["1"]));
  t.is(starts.length, 2, "each job once");
  t.is(log().filter((message) => SAID.test(message)).length, 1, "said once");
});

test("if the first fails then, the job runs again", async (t) => {
  const { workers, starts, end } = await unlocked(t, true);
  end();
  await until("both jobs are gone", async () => {
    return (await workers[0]!.row("select count(*)::int as n from dispatch_policy.jobs")).n === 0;
  });
  const [first] = starts;
  const id = first!.split(" ")[0]!;
  t.is(starts.filter((one) => one.startsWith(`${id} `)).length, 2);
  t.is(starts.length, 3);
});

test("a worker that stops while its attempt waits leaves the job, its attempt and the slot to the one that runs", async (t) => {
  const { workers, starts, end } = await unlocked(t);
  const waiting = workers.find(({ log }) => log.some(({ message }) => SAID.test(message)))!;
  const running = workers.find(({ happened }) => happened.some(({ event }) => event === "job:start"))!;
  await waiting.stop();
  t.is(starts.length, 1);
  t.is((await running.row("select count(*)::int as n from dispatch_policy.in_flight_jobs")).n, 1);
  end();
  await until("both jobs are gone", async () => {
    return (await running.row("select count(*)::int as n from dispatch_policy.jobs")).n === 0;
  });
  t.is(starts.length, 2, "each job once");
});
