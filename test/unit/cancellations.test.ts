// What a worker pool knows of cancelled jobs: which runs it tells, and which starts.
import test from "ava";
import { type Job, Logger } from "graphile-worker";
import { type CancelledError, definePolicy } from "../../src/index.ts";
import { makeCancellations } from "../../src/run/cancellations.ts";
import type { RunningJob } from "../../src/run/running-jobs.ts";
import { until } from "../helpers/until.ts";

const why = { by: "ana", reason: null };
const jobOf = (id: string) => ({ id, attempts: 1 }) as Job;
const policy = definePolicy("work", { partitionBy: "account" });

function world() {
  const lines: string[] = [];
  const emitted: object[] = [];
  const answers: (() => Promise<object[]>)[] = [];
  let looks = 0;
  let closed = false;
  const cancellations = makeCancellations({
    withPgClient: (async () => {
      looks++;
      return answers.shift()?.() ?? [];
    }) as never,
    engine: {} as never,
    logger: new Logger(() => (_level, message) => void lines.push(message)),
    events: { emit: (name, event) => emitted.push({ name, ...(event as object) }) > 0 },
    isClosed: () => closed,
  });
  const told: string[] = [];
  const run = (name: string, admission: string, ownsSlot = true): RunningJob => {
    const signal = {
      cancelled: undefined as CancelledError | undefined,
      stopped: false,
      abort(reason: unknown) {
        signal.cancelled = reason as CancelledError;
        told.push(`${name} ${signal.cancelled.by}`);
      },
    };
    const settlement = { settled: undefined };
    return {
      ...{ policy, admission, ownsSlot, signal, settlement },
      stagedId: null,
      lagMs: null,
      startedAt: 0,
    };
  };
  return {
    ...{ cancellations, lines, told, run, emitted },
    looks: () => looks,
    answer: (...jobs: (readonly [string, string])[]) =>
      answers.push(async () => jobs.map(([jobId, admission]) => ({ jobId, admission, ...why }))),
    later: (answer: () => Promise<object[]>) => answers.push(answer),
    close: () => {
      closed = true;
    },
  };
}

test("it tells the runs that it has, and those that start later, by the owner of their slot", async (t) => {
  const { cancellations, told, run, answer } = world();
  cancellations.started(jobOf("1"), run("one", "10"));
  cancellations.started(jobOf("2"), run("another admission", "11"));
  answer(["1", "10"], ["2", "10"], ["3", "10"]);
  await cancellations.look();
  t.deepEqual(told, ["one ana"]);
  cancellations.started(jobOf("3"), run("fetched before", "10"));
  cancellations.started(jobOf("4"), run("not cancelled", "10"));
  t.deepEqual(told, ["one ana", "fetched before ana"]);
});

test("a run that may go on for a while is told then, unless it has ended or somebody cancels it at once", async (t) => {
  const { cancellations, told, run, later } = world();
  const looked = (minRun: number | null, ...ids: string[]) => {
    later(async () => ids.map((jobId) => ({ jobId, admission: "10", minRun, ...why })));
    return cancellations.look();
  };
  const [one, two, three] = [jobOf("1"), jobOf("2"), jobOf("3")];
  const begun = (name: string, agoMs: number) => ({
    ...run(name, "10"),
    startedAt: performance.now() - agoMs,
  });
  cancellations.started(one, begun("at once", 60_000));
  cancellations.started(two, begun("later", 0));
  await looked(50, "1", "2", "3");
  t.deepEqual(told, ["at once ana"]);
  cancellations.started(three, begun("has not begun", 0));
  t.deepEqual(told, ["at once ana", "has not begun ana"]);
  await looked(null, "2");
  t.deepEqual(told, ["at once ana", "has not begun ana", "later ana"]);
  const four = jobOf("4");
  cancellations.started(four, begun("in a moment", 0));
  await looked(0.02, "4");
  await until("it is told", () => told.length === 4);
});

test("it tells no run that has ended, and none in the slot of a job that it replaced", async (t) => {
  const { cancellations, told, run, answer } = world();
  const ended = jobOf("1");
  cancellations.started(ended, run("ended", "10"));
  cancellations.started(jobOf("2"), run("replaced", "10", false));
  cancellations.ended(ended);
  answer(["1", "10"], ["2", "10"]);
  await cancellations.look();
  t.deepEqual(told, []);
});

test("the end of a run hides no other run of its job that this pool has", async (t) => {
  const { cancellations, told, run, answer } = world();
  const [lost, fetchedAgain] = [jobOf("1"), jobOf("1")];
  cancellations.started(lost, run("lost", "10"));
  cancellations.started(fetchedAgain, run("fetched again", "10"));
  cancellations.ended(lost);
  answer(["1", "10"]);
  await cancellations.look();
  t.deepEqual(told, ["fetched again ana"]);
});

test("a run is told once, however many looks find its job, and one event says so", async (t) => {
  const { cancellations, told, run, answer, emitted } = world();
  cancellations.started(jobOf("1"), run("one", "10"));
  for (const _ of [1, 2]) {
    answer(["1", "10"]);
    await cancellations.look();
  }
  t.deepEqual(told, ["one ana"]);
  const event = { policy: "work", jobId: "1", attempt: 1, ...why };
  t.deepEqual(emitted, [{ name: "dispatchPolicy:runCancelled", ...event }]);
});

test("a heartbeat looks only while jobs run", async (t) => {
  const { cancellations, looks, run } = world();
  await cancellations.lookIfRunning();
  t.is(looks(), 0);
  cancellations.started(jobOf("1"), run("one", "10"));
  await cancellations.lookIfRunning();
  t.is(looks(), 1);
});

test("a cancel during a look makes it look again, once for all", async (t) => {
  const { cancellations, looks, told, run, answer, later } = world();
  cancellations.started(jobOf("1"), run("one", "10"));
  const { promise, resolve } = Promise.withResolvers<object[]>();
  later(() => promise);
  answer(["1", "10"]);
  const first = cancellations.look();
  const others = [cancellations.look(), cancellations.look()];
  resolve([]);
  await Promise.all([first, ...others]);
  t.deepEqual([looks(), told], [2, ["one ana"]]);
});

test("a look that fails is a warning, unless the pool has closed, and the next one looks again", async (t) => {
  const { cancellations, lines, looks, later, close } = world();
  const fail = async () => {
    throw new Error("no connection");
  };
  later(fail);
  await cancellations.look();
  t.deepEqual(lines, ["Cannot look for cancelled jobs, the next heartbeat does: no connection"]);
  await cancellations.look();
  t.is(looks(), 2);
  close();
  later(fail);
  await cancellations.look();
  t.is(lines.length, 1);
});
