import { EventEmitter } from "node:events";
import test from "ava";
import type { Task, WorkerEvents } from "graphile-worker";
import { concurrency, fixed, list, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";

/** What a worker says about jobs that are not this package's own, in order. */
function listener(): { events: WorkerEvents; said: [event: string, task: string, attempts: number][] } {
  const events = new EventEmitter() as WorkerEvents;
  const said: [string, string, number][] = [];
  for (const event of ["job:start", "job:success", "job:error", "job:failed"] as const) {
    events.on(event, ({ job }: { job: { task_identifier: string; attempts: number } }) => {
      said.push([event, job.task_identifier, job.attempts]);
    });
  }
  return { events, said };
}

/** Fails so many times, and notes what it saw of each run. */
function failing(times: number) {
  const runs: { id: string; attempts: number; at: number; admittedAt: number; lastError: string | null }[] =
    [];
  const task: Task = async (_payload, { job, dispatchPolicy }) => {
    const admittedAt = Number(dispatchPolicy?.admittedAt);
    runs.push({ id: job.id, attempts: job.attempts, at: Date.now(), admittedAt, lastError: job.last_error });
    if (runs.length <= times) throw new Error(`failure ${runs.length}`);
  };
  return { runs, task };
}

const jobOf = async (it: Scenario, task: string) =>
  (await it.rows("select * from graphile_worker.jobs where task_identifier = $1", [task]))[0];

test("scenario 26: a job that fails twice takes a token each time, and is the same job throughout", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ rate: 1, per: "1 second" })],
    backoff: fixed("50 milliseconds"),
  });
  const { runs, task } = failing(2);
  const { events, said } = listener();
  await it.worker({ tasks: { p: task }, events });
  await it.stage("1@k");
  await until("it has succeeded", async () => said.some(([event]) => event === "job:success"));

  t.deepEqual(
    runs.map((run) => run.attempts),
    [1, 2, 3],
  );
  t.is(new Set(runs.map((run) => run.id)).size, 1);
  t.deepEqual(
    runs.map((run) => run.lastError),
    [null, "failure 1", "failure 2"],
  );
  for (const [n, run] of runs.entries()) {
    const before = runs[n - 1];
    if (before) t.true(run.admittedAt - before.admittedAt >= 995, "a token a second");
  }
  t.deepEqual(
    said.map(([event]) => event),
    [...["job:start", "job:error", "job:start", "job:error", "job:start", "job:success"]],
  );
  await until("its slot is back", async () => (await it.inFlight()).length === 0);
  t.is(await it.staged(), 0);
});

test("scenario 26: no slot is held while a failed job waits, and it keeps its place in the books", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })], backoff: fixed("1 hour") });
  const { runs, task } = failing(1);
  const { events, said } = listener();
  await it.worker({ tasks: { p: task }, events });
  const [first] = await it.stage("1@k");
  await until("it has run", async () => runs.length === 1);
  await until("it waits", async () => (await it.staged()) === 1 && (await it.inFlight()).length === 0);
  const [parked] = await it.rows("select * from dispatch_policy.staged_jobs");
  t.is(parked.id, first?.id, "one id");
  t.is((await jobOf(it, "p")).last_error, "failure 1");
  await it.stage("1@k");
  await until("the other one ran", async () => said.some(([event]) => event === "job:success"));
  t.is(await it.staged(), 1);
});

test("scenario 26: what the host says and records is what it says without a policy", async (t) => {
  const it = await scenario(t, { backoff: fixed("1 millisecond") });
  const { events, said } = listener();
  await it.worker({
    tasks: {
      p: async () => Promise.reject(new Error("always")),
      plain: async () => Promise.reject(new Error("always")),
    },
    events,
  });
  await it.stage("1@k", {}, { maxAttempts: 2 });
  await it.utils.addJob("plain", { key: "k" }, { maxAttempts: 2 });
  const of = (task: string) => said.filter((one) => one[1] === task).map(([event, , n]) => [event, n]);
  await until("the plain one has failed once", async () => of("plain").length >= 2);
  const { id } = await jobOf(it, "plain");
  await it.utils.rescheduleJobs([id], { runAt: new Date() });
  await it.rows("select pg_notify('jobs:insert', '{}')");
  for (const task of ["p", "plain"])
    await until(`${task} has failed`, async () => of(task).some(([event]) => event === "job:failed"));
  t.deepEqual(of("p"), of("plain"));
  const pick = ({ attempts, max_attempts, last_error, locked_at }: Record<string, unknown>) => {
    return { attempts, max_attempts, last_error, locked_at };
  };
  await until("it is unlocked", async () => (await jobOf(it, "p")).locked_at === null);
  await until("the other is too", async () => (await jobOf(it, "plain")).locked_at === null);
  t.deepEqual(pick(await jobOf(it, "p")), pick(await jobOf(it, "plain")));
  await until("its slot is back", async () => (await it.inFlight()).length === 0);
  t.is(await it.staged(), 0);
});

test("scenario 26: retries and new jobs of a partition share its tokens", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ rate: 4, per: "1 hour" })],
    backoff: fixed("1 millisecond"),
  });
  const { runs, task } = failing(3);
  await it.worker({ tasks: { p: task } });
  await it.stage("3@k");
  await until("four have run", async () => runs.length === 4);
  await until("all is quiet", async () => (await it.inFlight()).length === 0);
  t.is(await it.staged(), 2, "three jobs, four runs, one success");
  t.true((await it.limiter("throttle")).tokens < 0.1);
});

test("scenario 27: a bypassing retry takes no token, yet counts as in flight while it runs", async (t) => {
  const it = await scenario(t, {
    gates: [throttle<Ctx>({ rate: 5, per: "1 hour" }), concurrency<Ctx>({ max: 1 })],
    retries: "bypass",
    backoff: fixed("1 millisecond"),
  });
  const attempts: number[] = [];
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  await it.worker({
    tasks: {
      p: async (_payload, { job }) => {
        attempts.push(job.attempts);
        if (attempts.length === 1) throw new Error("once");
        if (attempts.length === 2) await finished;
      },
    },
  });
  t.teardown(() => finish());
  await it.stage("1@k");
  await until("its retry runs", async () => attempts.length === 2);
  t.deepEqual(attempts, [1, 2]);
  await until("it counts", async () => (await it.limiter("concurrency")).in_flight === 1);
  t.is((await it.inFlight()).length, 1);
  t.true(Math.abs((await it.limiter("throttle")).tokens - 4) < 0.1, "one token, for the first run");
  await it.stage("1@k");
  t.is((await it.tickNow()).admitted, 0);
  finish();
  await until("the next one ran", async () => attempts.length === 3);
  await until("nothing is in flight", async () => (await it.limiter("concurrency")).in_flight === 0);
});

test("scenario 27: a bypassing retry runs beside a full cap", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 1 })],
    retries: "bypass",
    backoff: fixed("1 hour"),
  });
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  const runs: string[] = [];
  await it.worker({
    tasks: {
      p: async (payload, { job }) => {
        const { account } = payload as { account: string };
        runs.push(`${account} ${job.attempts}`);
        if (account === "fails" && job.attempts === 1) throw new Error("once");
        await finished;
      },
    },
  });
  t.teardown(() => finish());
  await it.stage("1@k", { account: "fails" });
  await until("it waits", async () => {
    const job = await jobOf(it, "p");
    return job?.last_error === "once" && job.run_at > new Date(Date.now() + 60_000);
  });
  await until("its slot is back", async () => (await it.inFlight()).length === 0);
  const { id } = await jobOf(it, "p");
  await it.stage("1@k", { account: "fills" });
  await until("the other one runs", async () => runs.includes("fills 1"));
  await it.utils.rescheduleJobs([id], { runAt: new Date() });
  await it.rows("select pg_notify('jobs:insert', '{}')");
  await until("the retry runs too", async () => runs.includes("fails 2"));
  await until("both count", async () => (await it.limiter("concurrency")).in_flight === 2);
  t.is((await it.limiter("concurrency")).available, 0);
  finish();
  await until("all slots are back", async () => (await it.limiter("concurrency")).in_flight === 0);
});

test("scenario 28: a back-off of 10, 20 and 30 s, then never again", async (t) => {
  const it = await scenario(t, { backoff: list(["10 seconds", "20 seconds", "30 seconds"]) });
  const { runs, task } = failing(99);
  const { events, said } = listener();
  await it.worker({ tasks: { p: task }, events, loop: false });
  await it.stage("1@k");
  await it.tickNow();
  for (const [n, seconds] of [10, 20, 30].entries()) {
    await until(`it failed ${n + 1} times`, async () => runs.length === n + 1);
    await until("it waits", async () => (await it.staged()) === 1 && (await it.inFlight()).length === 0);
    const [row] = await it.rows("select * from dispatch_policy.staged_jobs");
    const waits = (row.run_at.getTime() - (runs.at(-1)?.at ?? 0)) / 1000;
    t.true(waits >= seconds - 0.1 && waits < seconds + 9, `${waits} s for ${seconds}`);
    t.is((await it.utils.tick({ now: new Date(row.run_at.getTime() - 100) })).admitted, 0);
    t.is((await it.utils.tick({ now: new Date(row.run_at.getTime() + 1) })).admitted, 1);
  }
  await until("it failed for good", async () => {
    const { attempts, max_attempts, locked_at } = await jobOf(it, "p");
    return runs.length === 4 && locked_at === null && attempts === max_attempts;
  });
  t.is((await jobOf(it, "p")).last_error, "failure 4");
  await until("its slot is back", async () => (await it.inFlight()).length === 0);
  t.is(await it.staged(), 0);
  t.is(said.filter(([event]) => event === "job:error").length, 4);
});

test("scenario 28: a back-off that looks at the error, the attempt and the job", async (t) => {
  const seen: unknown[] = [];
  const it = await scenario(t, {
    backoff: (error, attempt, job) => {
      seen.push([(error as Error).message, attempt, job.task_identifier]);
      return attempt >= 2 ? false : { after: "1 millisecond", priority: 5 };
    },
  });
  const { runs, task } = failing(99);
  await it.worker({ tasks: { p: task } });
  await it.stage("1@k");
  await until("it failed for good", async () => {
    const job = await jobOf(it, "p");
    return job?.attempts === job?.max_attempts && job?.locked_at === null && runs.length === 2;
  });
  t.deepEqual(seen, [
    ["failure 1", 1, "p"],
    ["failure 2", 2, "p"],
  ]);
});
