// What a worker pool knows of cancelled jobs: which runs it tells, and which starts.
import test from "ava";
import { type Job, Logger } from "graphile-worker";
import { type Cancellation, makeCancellations } from "../../src/run/cancellations.ts";
import type { RunningJob } from "../../src/run/running-jobs.ts";

const why = { by: "ana", reason: null };
const jobOf = (id: string) => ({ id }) as Job;

function world() {
  const lines: string[] = [];
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
    isClosed: () => closed,
  });
  const told: string[] = [];
  const run = (name: string, admission: string, ownsSlot = true) =>
    ({
      admission,
      ownsSlot,
      cancel: ({ by }: Cancellation) => told.push(`${name} ${by}`),
    }) as unknown as RunningJob;
  return {
    ...{ cancellations, lines, told, run },
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

test("it tells no run that has ended, and none in the slot of a job that it replaced", async (t) => {
  const { cancellations, told, run, answer } = world();
  const ended = run("ended", "10");
  cancellations.started(jobOf("1"), ended);
  cancellations.started(jobOf("2"), run("replaced", "10", false));
  cancellations.ended(jobOf("1"), ended);
  answer(["1", "10"], ["2", "10"]);
  await cancellations.look();
  t.deepEqual(told, []);
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
