// Other hands on a policy's jobs: Graphile Worker's own verbs and keys, operators, tasks without a policy. None of them
// gets past a limit, and none leaves a slot taken.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker, type WorkerOptions } from "../helpers/worker.ts";

interface Payload {
  k: string;
}

const policy = definePolicy("p", {
  partitionBy: "k",
  backoff: () => false,
  gates: ({ concurrency }) => [concurrency({ max: 1 })],
});

/** A worker that counts how many jobs of each partition run at once. Jobs fail while `fails`, and run until let go. */
async function world(t: Parameters<typeof startWorker>[0], options: Partial<WorkerOptions> = {}) {
  const now: Record<string, number> = {};
  const most: Record<string, number> = {};
  const ends: (() => void)[] = [];
  const state = { fails: false, holds: false, runs: 0 };
  const worker = await startWorker(t, {
    policies: [policy],
    preset: { sweepInterval: "1 hour" },
    tasks: {
      p: async (payload) => {
        const { k } = payload as Payload;
        if (state.fails) throw new Error("down");
        now[k] = (now[k] ?? 0) + 1;
        most[k] = Math.max(most[k] ?? 0, now[k]);
        state.runs++;
        // long enough for another one to start beside it
        if (state.holds) await new Promise<void>((resolve) => ends.push(resolve));
        else await until("others had their time", async () => (await others(worker)) >= 0, { everyMs: 1 });
        now[k]--;
      },
      plain: async () => {},
      block: () => new Promise<void>((resolve) => ends.push(resolve)),
    },
    ...options,
  });
  t.teardown(() => ends.forEach((end) => void end()));
  return { worker, most, ends, state };
}

/** A round trip or two: what may start beside a job has started by then. */
async function others({ row }: TestWorker): Promise<number> {
  await row("select pg_sleep(0.05)");
  return 0;
}

const inFlight = ({ row }: TestWorker) =>
  row("select count(*)::int as n from dispatch_policy.in_flight_jobs").then(({ n }) => n as number);

/** Admits jobs while every worker is busy, so that they wait in Graphile Worker. */
async function admitted(
  { worker }: Awaited<ReturnType<typeof world>>,
  jobs: readonly { k: string; jobKey?: string }[],
): Promise<string[]> {
  for (let n = 0; n < 4; n++) await worker.utils.addJob("block", {});
  await worker.sees("job:start", 4);
  const ids: string[] = [];
  for (const { k, ...spec } of jobs) ids.push((await worker.utils.addJob(policy, { k }, spec)).id);
  await until("they are admitted", async () => (await inFlight(worker)) === jobs.length);
  return ids;
}

const letGo = (ends: (() => void)[]) => ends.splice(0).forEach((end) => void end());

for (const [whose, reschedule] of Object.entries({
  "this package's": (worker: TestWorker, ids: string[]) =>
    worker.utils.rescheduleJobs(ids, { attempts: 0, runAt: new Date() }),
  "Graphile Worker's": (worker: TestWorker, ids: string[]) =>
    worker.row(
      "select pg_notify('jobs:insert', '{\"r\":1,\"count\":9}') from graphile_worker.reschedule_jobs($1, attempts => 0, run_at => now())",
      [ids],
    ),
})) {
  test(`failed jobs that ${whose} rescheduleJobs runs again keep to the limits`, async (t) => {
    const { worker, most, state } = await world(t, { worker: { concurrentJobs: 10 } });
    state.fails = true;
    for (let n = 0; n < 6; n++) await worker.utils.addJob(policy, { k: "a" });
    await until("all have failed for good", async () => {
      const { n } = await worker.row(
        "select count(*)::int as n from dispatch_policy.jobs where state = 'failed'",
      );
      return n === 6;
    });
    await worker.everythingIsReleased();
    state.fails = false;
    const { ids } = await worker.row("select array_agg(id::text) as ids from graphile_worker.jobs");
    await reschedule(worker, ids);
    await until("all ran", () => state.runs === 6);
    t.is(most.a, 1);
    await worker.everythingIsReleased();
  });
}

test("native jobs that replace admitted ones of other partitions keep to their own partition's limit", async (t) => {
  const it = await world(t);
  const { worker, most, ends, state } = it;
  const jobs = Array.from({ length: 4 }, (_, n) => ({ k: `a${n}`, jobKey: `k${n}` }));
  await admitted(it, jobs);
  await worker.row(
    `select graphile_worker.add_job('p', '{"k":"b"}', job_key => 'k' || n) from generate_series(0, 3) n`,
  );
  letGo(ends);
  await until("all ran", () => state.runs === 4);
  t.is(most.b, 1);
  await worker.everythingIsReleased();
});

test("a job without a policy that replaces an admitted one frees its slot when it ends", async (t) => {
  const it = await world(t);
  const { worker, ends, state } = it;
  await admitted(it, [{ k: "a", jobKey: "k" }]);
  await worker.row("select graphile_worker.add_job('plain', '{}', job_key => 'k')");
  await worker.utils.addJob(policy, { k: "a" });
  letGo(ends);
  await until("the next of the partition runs", () => state.runs === 1);
  await worker.everythingIsReleased();
  t.pass();
});

test("jobs that are released before they start wait for their turn once more", async (t) => {
  const it = await world(t);
  const { worker, most, ends, state } = it;
  const [first] = await admitted(it, [{ k: "a" }]);
  await worker.utils.addJob(policy, { k: "a" });
  await worker.utils.releaseSlots({ jobId: first!, reason: "test" });
  await until("another one is admitted", async () => (await inFlight(worker)) === 1);
  letGo(ends);
  await until("both ran", () => state.runs === 2);
  t.is(most.a, 1);
  await worker.everythingIsReleased();
});

test("an admitted job that is postponed until tomorrow lets the next one go", async (t) => {
  const it = await world(t);
  const { worker, ends, state } = it;
  const [first] = await admitted(it, [{ k: "a" }]);
  await worker.utils.addJob(policy, { k: "a" });
  await worker.utils.rescheduleJobs([first!], { runAt: new Date(Date.now() + 86_400_000) });
  letGo(ends);
  await until("the next one ran", () => state.runs === 1);
  const { reason, job_id } = await worker.row("select reason, job_id from dispatch_policy.staged_jobs");
  t.is(reason, "not_due");
  t.not(job_id, null, "parked until its time");
});
