// What becomes of a job that fails: parked inside Graphile Worker and admitted again, or retried past the gates.
import test, { type ExecutionContext } from "ava";
import type { Job, JobHelpers } from "graphile-worker";
import {
  type AnyPolicy,
  definePolicy,
  exponential,
  fixed,
  list,
  polynomial,
  RetryAfter,
} from "../../src/index.ts";
import { MODES, type Mode } from "../fixtures/governed/modes.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker, type TestWorker } from "../helpers/worker.ts";

const HOUR = 3600;

type Options = Omit<Parameters<typeof definePolicy>[1], "partitionBy" | "context">;

/** A policy over the task "work", partitioned by account. */
function policyOf(options: object = {}): AnyPolicy {
  return definePolicy("work", { partitionBy: "account", ...options } as Options & { partitionBy: string });
}

/** A task that fails as long as there are errors left. */
function failing(...errors: unknown[]) {
  return async () => {
    if (errors.length > 0) throw errors.shift();
  };
}

/** The job as Graphile Worker has it, and what of it is staged. */
async function stateOf(worker: TestWorker, jobId: string) {
  return worker.row(
    `select j.run_at = 'infinity' as parked, j.priority, j.attempts, j.max_attempts, j.last_error, j.locked_at,
      (extract(epoch from j.run_at) - extract(epoch from clock_timestamp()))::float8 as native_in,
      s.partition, s.priority as staged_priority, s.id as staged_id,
      extract(epoch from s.run_at - clock_timestamp())::float8 as due_in,
      exists (select from dispatch_policy.in_flight_jobs f where f.job_id = j.id) as in_flight
     from graphile_worker.jobs j left join dispatch_policy.staged_jobs s on s.job_id = j.id where j.id = $1`,
    [jobId],
  );
}

/** Runs one job that fails, and resolves to what it waits for. */
async function failOnce(
  t: ExecutionContext,
  backoff: unknown,
  { errors = [new Error("broken")], spec = {} }: { errors?: unknown[]; spec?: object } = {},
) {
  const worker = await startWorker(t, {
    policies: [policyOf({ backoff })],
    tasks: { work: failing(...errors) },
  });
  await worker.utils.addJob("work", { account: "a" }, spec);
  const seen = await worker.sees("job:error", errors.length);
  const { id } = seen[0]!;
  const state = await until("it waits for its retry", async () => {
    const now = await stateOf(worker, id);
    return now.parked && now.attempts === errors.length && now.due_in !== null && !now.in_flight && now;
  });
  return { worker, id, state };
}

for (const mode of Object.keys(MODES) as Mode[]) {
  test(`a failed job is parked and admitted again, under its id: ${mode}`, async (t) => {
    const tasks = {
      work: async (_payload: unknown, helpers: JobHelpers) => {
        if (helpers.job.attempts < 3) throw new Error(`attempt ${helpers.job.attempts}`);
      },
    };
    const policy = policyOf({ backoff: fixed("10 ms") });
    const worker = await startWorker(t, { policies: [policy], tasks, worker: MODES[mode] });
    await worker.utils.pause({ policy: "work" });
    const added = await worker.utils.addJob("work", { account: "a" }, { priority: 3, maxAttempts: 5 });
    t.true("staged" in added && added.staged);

    for (const attempt of [1, 2]) {
      // one admission, by force: the pause keeps the retry where it can be looked at
      await until("it is due", async () => {
        return (await worker.utils.admit({ policy: "work", count: 1 })).changed > 0;
      });
      const { id } = (await worker.sees("job:error", attempt)).at(-1)!;
      const state = await until("it is parked", async () => {
        const now = await stateOf(worker, id);
        return now.parked && now.due_in !== null && now;
      });
      t.like(state, {
        priority: 32767,
        staged_priority: 3,
        attempts: attempt,
        last_error: `attempt ${attempt}`,
        locked_at: null,
        in_flight: false,
        staged_id: added.id,
      });
    }

    await worker.utils.resume({ policy: "work" });
    await worker.sees("job:success");
    await worker.everythingIsReleased();
    const events = worker.happened.map(({ event, attempt, priority }) => [event, attempt, priority]);
    t.deepEqual(events, [
      ["job:start", 1, 3],
      ["job:error", 1, 3],
      ["job:start", 2, 3],
      ["job:error", 2, 3],
      ["job:start", 3, 3],
      ["job:success", 3, 3],
    ]);
    t.is(new Set(worker.happened.map(({ id }) => id)).size, 1, "one id throughout");
    await until("the job is gone", async () => !(await worker.row("select from graphile_worker.jobs")));
  });
}

test("a retry passes the gates again", async (t) => {
  const policy = definePolicy("work", {
    partitionBy: "account",
    gates: ({ throttle }) => [throttle({ rate: 1, per: "1 hour" })],
    backoff: () => "10 ms",
  });
  const worker = await startWorker(t, { policies: [policy], tasks: { work: failing(new Error("broken")) } });
  await worker.utils.addJob(policy, { account: "a" });
  await worker.sees("job:error");
  await until("it is denied", async () => {
    const found = await worker.row("select reason from dispatch_policy.staged_jobs where job_id is not null");
    return found?.reason === "throttle_empty";
  });
  t.is(worker.happened.filter(({ event }) => event === "job:start").length, 1);
});

test("a job that waits for its retry lets the next one go", async (t) => {
  const policy = definePolicy("work", {
    partitionBy: "account",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
    backoff: () => "1 hour",
  });
  const tasks = { work: failing(new Error("first"), new Error("second")) };
  const worker = await startWorker(t, { policies: [policy], tasks });
  await worker.utils.addJobs([1, 2, 3].map((n) => ({ identifier: "work", payload: { account: "a", n } })));
  await worker.sees("job:success");
  t.deepEqual(
    worker.happened.map(({ event }) => event).filter((event) => event !== "job:start"),
    ["job:error", "job:error", "job:success"],
  );
  await worker.everythingIsReleased();
});

test("the last attempt fails for good", async (t) => {
  const worker = await startWorker(t, {
    policies: [policyOf({ backoff: fixed("10 ms") })],
    tasks: { work: () => Promise.reject(new Error("broken")) },
  });
  await worker.utils.addJob("work", { account: "a" }, { maxAttempts: 1 });
  await worker.utils.addJob("work", { account: "b" }, { maxAttempts: 2 });
  const failed = await worker.sees("job:failed", 2);
  await worker.everythingIsReleased();
  t.deepEqual(failed.map(({ attempt }) => attempt).sort(), [1, 2]);
  for (const { id, attempt } of failed) {
    t.like(await stateOf(worker, id), {
      parked: false,
      attempts: attempt,
      max_attempts: attempt,
      due_in: null,
    });
  }
});

test("backoff: an interval", async (t) => {
  const { state } = await failOnce(t, fixed("1 hour"));
  t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);
});

test("backoff: exponential", async (t) => {
  const { state } = await failOnce(t, exponential({ base: "1 hour", jitter: "equal" }));
  t.true(state.due_in > HOUR / 2 - 60 && state.due_in <= HOUR, `${state.due_in}`);
});

test("backoff: polynomial", async (t) => {
  const { state } = await failOnce(t, polynomial({ base: "1 hour", power: 3 }));
  t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);
});

test("backoff: a list, used up after its last entry", async (t) => {
  const errors = [new Error("first"), new Error("second")];
  const { state } = await failOnce(t, list(["0 seconds", "1 hour"]), { errors });
  t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);

  const policies = [policyOf({ backoff: list(["0 seconds"]) })];
  const tasks = { work: failing(new Error("first"), new Error("second")) };
  const worker = await startWorker(t, { policies, tasks });
  await worker.utils.addJob("work", { account: "a" });
  const [, { id }] = (await worker.sees("job:error", 2)) as [unknown, { id: string }];
  await until("it failed for good", async () => (await stateOf(worker, id)).attempts === 25);
  t.is((await stateOf(worker, id)).last_error, "second", "with the host's message");
});

test("backoff: by error and attempt", async (t) => {
  class Busy extends Error {}
  const backoff = (error: unknown, attempt: number, job: Job) => {
    if (!(error instanceof Busy)) return false;
    return `${attempt * 2} hours ${job.id}`.split(" ").slice(0, 2).join(" ");
  };
  const { state } = await failOnce(t, backoff, { errors: [new Busy()] });
  t.true(state.due_in > 2 * HOUR - 60 && state.due_in <= 2 * HOUR, `${state.due_in}`);
});

test("backoff false fails for good, with the host's message", async (t) => {
  const worker = await startWorker(t, {
    policies: [policyOf({ backoff: () => false })],
    tasks: { work: failing(new Error("not worth a retry")) },
  });
  const gaveUp: unknown[] = [];
  worker.runner.events.on("dispatchPolicy:giveUp" as never, (event: unknown) => void gaveUp.push(event));
  await worker.utils.addJob("work", { account: "a" });
  const { id } = (await worker.sees("job:error"))[0]!;
  await worker.everythingIsReleased();
  t.like(await stateOf(worker, id), {
    attempts: 25,
    last_error: "not worth a retry",
    parked: false,
    due_in: null,
  });
  t.deepEqual(gaveUp, [{ policy: "work", jobId: id, attempt: 1 }]);
});

test("backoff: another priority", async (t) => {
  const { state } = await failOnce(t, () => ({ after: "1 hour", priority: -5 }), { spec: { priority: 7 } });
  t.like(state, { priority: 32767, staged_priority: -5 });
});

test("backoff: another partition, whose limits then hold", async (t) => {
  const seen: unknown[] = [];
  const policy = definePolicy("work", {
    partitionBy: "account",
    gates: ({ concurrency }) => [concurrency({ max: 1 })],
    backoff: () => ({ after: "0 seconds", partition: "slow lane" }),
  });
  const task = policy.task(async (_payload, helpers) => {
    const { partition, attempt } = helpers.dispatchPolicy;
    const { rows } = await helpers.query("select partition from dispatch_policy.in_flight_jobs");
    seen.push([attempt, partition, rows.map((one) => one.partition)]);
    if (attempt === 1) throw new Error("broken");
  });
  const worker = await startWorker(t, { policies: [policy], tasks: { work: task } });
  await worker.utils.addJob(policy, { account: "a" });
  await worker.sees("job:success");
  t.deepEqual(seen, [
    [1, "a", ["a"]],
    [2, "slow lane", ["slow lane"]],
  ]);
  await worker.everythingIsReleased();
});

test("backoff that throws: Graphile Worker's own, and an error in the log", async (t) => {
  const mistake = () => {
    throw new Error("a mistake");
  };
  const { worker, state } = await failOnce(t, mistake);
  t.true(state.due_in <= Math.E, `${state.due_in}`);
  const line = worker.log.find(({ message }) => message.includes("a mistake"));
  t.is(line?.level, "error");
});

test("without backoff: as long as Graphile Worker would wait", async (t) => {
  const { state } = await failOnce(t, undefined);
  t.true(state.due_in <= Math.E, `${state.due_in}`);
});

test("RetryAfter holds the partition, and retries the job then", async (t) => {
  const { worker, state } = await failOnce(t, undefined, {
    errors: [new RetryAfter("1 hour", { reason: "429" })],
  });
  t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);
  await worker.utils.addJobs([
    { identifier: "work", payload: { account: "a" } },
    { identifier: "work", payload: { account: "b" } },
  ]);
  await worker.sees("job:success");
  const partition =
    await worker.row(`select staged, stop_reason, held_until > now() + interval '59 minutes' as held
    from dispatch_policy.partitions where partition = 'a'`);
  t.deepEqual(partition, { staged: 2, stop_reason: "429", held: true });
  t.is(worker.happened.filter(({ event }) => event === "job:success").length, 1);
});

const LATER = new RetryAfter("1 hour", { reason: "429" });
const SAID: Record<string, (error: unknown) => unknown> = {
  "as the cause of another error": () => new Error("the partner refused", { cause: LATER }),
  "deep within errors": () =>
    new AggregateError([new Error("one"), new Error("two", { cause: LATER })], "all"),
  "as the later of two": () =>
    new AggregateError([new RetryAfter("1 second"), LATER, new RetryAfter("1 minute")]),
};

for (const [what, wrapped] of Object.entries(SAID))
  test(`RetryAfter holds the partition ${what}`, async (t) => {
    const { worker, state } = await failOnce(t, fixed("10 ms"), { errors: [wrapped(LATER)] });
    t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);
    const held = "select held_until > now() + interval '59 minutes' as held from dispatch_policy.partitions";
    t.true((await worker.row(held)).held);
  });

test("RetryAfter of a part of a batch holds the partition, while the others of its parts go on", async (t) => {
  const others = Promise.withResolvers<void>();
  const policy = definePolicy("work", { partitionBy: "0.account", backoff: fixed("10 ms") });
  const tasks = {
    work: async (payload: unknown) =>
      (payload as { n: number }[]).map(async ({ n }) => {
        if (n === 2) throw LATER;
        await others.promise;
      }),
  };
  const worker = await startWorker(t, { policies: [policy], tasks });
  await worker.utils.addJob(
    "work",
    [1, 2, 3].map((n) => ({ account: "a", n })),
  );
  const partition = `select stop_reason, held_until > now() + interval '59 minutes' as held
    from dispatch_policy.partitions where partition = 'a'`;
  await until("its partition is held", async () => (await worker.row(partition))?.held);
  t.deepEqual(
    worker.happened.map(({ event }) => event),
    ["job:start"],
    "the batch still runs",
  );
  others.resolve();
  const { id } = (await worker.sees("job:error"))[0]!;
  const state = await until("it waits for its retry", async () => {
    const now = await stateOf(worker, id);
    return now.parked && now.due_in !== null && !now.in_flight && now;
  });
  t.true(state.due_in > HOUR - 60 && state.due_in <= HOUR, `${state.due_in}`);
});

test("backoff gets the errors of a batch's parts", async (t) => {
  const seen: unknown[] = [];
  const backoff = (error: unknown) => {
    seen.push(error);
    return false;
  };
  const policy = definePolicy("work", { partitionBy: "0.account", backoff: backoff as never });
  const failures = [new Error("part 1"), "no error", undefined];
  const tasks = {
    work: async () => [...failures.map((failure) => Promise.reject(failure)), Promise.resolve()],
  };
  const worker = await startWorker(t, { policies: [policy], tasks });
  await worker.utils.addJob(
    "work",
    [1, 2, 3, 4].map((n) => ({ account: "a", n })),
  );
  await worker.everythingIsReleased();
  await until("backoff was asked", () => seen.length > 0);
  const [error] = seen as [AggregateError];
  t.true(error instanceof AggregateError);
  t.deepEqual(error.errors, failures);
  t.regex(error.message, /^Batch failures:\npart 1\nno error\n/);
});

test("a batch whose parts failed is retried with those", async (t) => {
  const policy = definePolicy("work", { partitionBy: "0.account", backoff: fixed("10 ms") });
  const tasks = {
    work: async (payload: unknown, { job }: JobHelpers) =>
      (payload as { n: number }[]).map(async ({ n }) => {
        if (job.attempts === 1 && n !== 1) throw new Error(`part ${n}`);
      }),
  };
  const worker = await startWorker(t, { policies: [policy], tasks });
  await worker.utils.addJob(
    "work",
    [1, 2, 3].map((n) => ({ account: "a", n })),
  );
  await worker.sees("job:success");
  await worker.everythingIsReleased();
  const ended = worker.happened.filter(({ event }) => event !== "job:start");
  t.deepEqual(
    ended.map(({ event, attempt, payload, error }) => ({ event, attempt, payload, error })),
    [
      {
        event: "job:error",
        attempt: 1,
        payload: [1, 2, 3].map((n) => ({ account: "a", n })),
        error: "Batch failures:\npart 2\npart 3",
      },
      {
        event: "job:success",
        attempt: 2,
        payload: [2, 3].map((n) => ({ account: "a", n })),
        error: undefined,
      },
    ],
  );
});

test("a job whose key was copied while it ran is not parked", async (t) => {
  const first = Promise.withResolvers<void>();
  const tasks = {
    work: async (payload: unknown) => {
      if ((payload as { n: number }).n === 1) await first.promise;
    },
  };
  const worker = await startWorker(t, { policies: [policyOf({ backoff: fixed("10 ms") })], tasks });
  await worker.utils.addJob("work", { account: "a", n: 1 }, { jobKey: "key" });
  const { id } = (await worker.sees("job:start"))[0]!;
  await worker.utils.addJob("work", { account: "a", n: 2 }, { jobKey: "key" });
  await worker.sees("job:success");
  first.reject(new Error("broken"));
  await worker.sees("job:error");
  await worker.everythingIsReleased();
  await until("its failure is recorded", async () => (await stateOf(worker, id)).locked_at === null);
  t.like(await stateOf(worker, id), { attempts: 25, parked: false, due_in: null, last_error: "broken" });
});

test("bypass: a retry takes no token, and counts as in flight while it runs", async (t) => {
  const policy = definePolicy("work", {
    partitionBy: "account",
    gates: ({ throttle, concurrency }) => [throttle({ rate: 1, per: "1 hour" }), concurrency({ max: 1 })],
    retries: "bypass",
    backoff: (_error, attempt) => (attempt === 1 ? "10 ms" : "1 hour"),
  });
  const seen: unknown[] = [];
  const task = policy.task(async (_payload, helpers) => {
    const { rows } = await helpers.query(
      "select in_flight from dispatch_policy.limiters where gate = 'concurrency'",
    );
    seen.push(rows[0]?.in_flight);
    throw new Error("broken");
  });
  // Graphile Worker finds its own retries by polling
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: task },
    worker: { pollInterval: 50 },
  });
  await worker.utils.addJob(policy, { account: "a" });
  const [first, second] = await worker.sees("job:error", 2);
  t.is(first!.id, second!.id);
  await worker.everythingIsReleased();
  t.deepEqual(seen, [1, 1]);
  const { native_in, parked } = await stateOf(worker, first!.id);
  t.false(parked);
  t.true(native_in > HOUR - 60 && native_in <= HOUR, `${native_in}`);
  const { tokens } = await worker.row("select tokens from dispatch_policy.limiters where gate = 'throttle'");
  t.true(tokens >= 0 && tokens < 0.1, `${tokens}`);
});

test("bypass without backoff leaves the retry to Graphile Worker", async (t) => {
  const policy = policyOf({ retries: "bypass" });
  const worker = await startWorker(t, { policies: [policy], tasks: { work: failing(new Error("broken")) } });
  await worker.utils.addJob("work", { account: "a" });
  const { id } = (await worker.sees("job:error"))[0]!;
  await worker.everythingIsReleased();
  const { native_in, parked } = await stateOf(worker, id);
  t.false(parked);
  t.true(native_in <= Math.E, `${native_in}`);
});

test("a job that no longer holds anything is left to Graphile Worker: parked, nothing would admit it", async (t) => {
  const task = async () => {
    await table(worker.pool, "in_flight_jobs").remove();
    throw new Error("broken");
  };
  const worker = await startWorker(t, { policies: [policyOf()], tasks: { work: task } });
  await worker.utils.addJob("work", { account: "a" });
  const { id } = (await worker.sees("job:error"))[0]!;
  await until("its failure is recorded", async () => (await stateOf(worker, id)).locked_at === null);
  await worker.stop(); // the last release was flushed
  t.like(await stateOf(worker, id), { parked: false, due_in: null, last_error: "broken" });
});

test("backoff: another partition that is there already keeps its limits", async (t) => {
  const policy = definePolicy("work", {
    context: (payload) => payload as { account: string; max: number },
    partitionBy: (c) => c.account,
    gates: ({ concurrency }) => [concurrency({ max: (c) => c.max })],
    backoff: () => ({ after: "0 seconds", partition: "slow" }),
  });
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: policy.task(async (payload, { job }) => {
        if ((payload as { account: string }).account === "fast" && job.attempts === 1)
          throw new Error("broken");
      }),
    },
  });
  await worker.utils.addJob(policy, { account: "slow", max: 1 });
  await worker.sees("job:success");
  await worker.utils.addJob(policy, { account: "fast", max: 9 });
  await worker.sees("job:success", 2);
  const { max } = await worker.row("select max from dispatch_policy.limiters where scope_key = 'slow'");
  t.is(max, 1);
});
