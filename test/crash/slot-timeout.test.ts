// A job that hangs in a live process frees its slot, by itself or by an operator.
import test from "ava";
import { ArgumentError, concurrency, definePolicy } from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { quietPool } from "../helpers/database.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const account = { account: "a" };
const options = { partitionBy: "account", gates: [concurrency({ max: 1 })] };

/** Tasks that run until each is told to end, in the order they started. After `endAll` those that start end at once. */
function hands() {
  const ends: (() => void)[] = [];
  let over = false;
  const task = () => new Promise<void>((resolve) => void (over ? resolve() : ends.push(resolve)));
  const endAll = () => {
    over = true;
    for (const end of ends) end();
  };
  return { ends, task, endAll };
}

test("slotTimeout: the next job starts, and the late end of the first frees nothing", async (t) => {
  const policy = definePolicy("work", { ...options, slotTimeout: "1 hour" });
  const { ends, task } = hands();
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { work: task },
    preset: { sweepInterval: "1 second" },
  });
  t.teardown(() => ends.forEach((end) => void end()));
  const first = await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  const { admitted_at: since } = await worker.row("select admitted_at from dispatch_policy.in_flight_jobs");
  t.truthy(since);
  await worker.utils.addJob(policy, account);
  await table(worker.pool, "policies").set({ slot_timeout: 3 });
  await until("the second runs as well", () => ends.length === 2);
  await table(worker.pool, "policies").set({ slot_timeout: null }); // only the first hangs
  const audit = await worker.row(
    "select * from dispatch_policy.audit where verb = 'release_slots' order by id limit 1",
  );
  t.like(audit, {
    policy: "work",
    partition: "a",
    reason: "slotTimeout",
    by: "sweep",
    matched: 1,
    changed: 1,
  });
  await until("it is logged", () =>
    worker.log.some(
      ({ level, message }) => level === "warning" && message.includes("1 slot past its slotTimeout"),
    ),
  );
  ends[0]!();
  await worker.sees("job:success");
  await worker.utils.sweep();
  const left = await worker.row("select * from dispatch_policy.in_flight_jobs");
  t.truthy(left);
  t.not(left.staged_id, first.id);
  t.is(
    (await worker.row("select in_flight from dispatch_policy.limiters where gate = 'concurrency'")).in_flight,
    1,
  );
  ends[1]!();
  await worker.everythingIsReleased();
});

test("slotTimeout: each start is recorded, because nobody knows how long the answer to its fetch took", async (t) => {
  const { ends, task } = hands();
  t.teardown(() => ends.forEach((end) => void end()));
  const noted = definePolicy("noted", { ...options, slotTimeout: "1 minute" });
  const believed = definePolicy("believed", options);
  const worker = await startWorker(t, {
    policies: [noted, believed],
    tasks: { noted: task, believed: task },
  });
  for (const policy of [noted, believed]) await worker.utils.addJob(policy, account);
  await until("both run", () => ends.length === 2);
  const seen = async (policy: string) => {
    const { id } = await table(worker.pool, "policies").one({ name: policy });
    const { attempt, started_at } = await table(worker.pool, "in_flight_jobs").one({ policy_id: id });
    return { attempt, starts: started_at !== null };
  };
  t.deepEqual(await seen("believed"), { attempt: null, starts: false });
  t.deepEqual(await seen("noted"), { attempt: 1, starts: true });
  for (const end of ends) end();
  await worker.everythingIsReleased();
});

test("slotTimeout: a job that lost its slot in a local queue does not start without one", async (t) => {
  const policy = definePolicy("work", { ...options, slotTimeout: "1 second" });
  const busy = hands();
  const { ends, task } = hands();
  t.teardown(() => [...busy.ends, ...ends].forEach((end) => void end()));
  const common = { policies: [policy], tasks: { work: task, busy: busy.task } };
  const first = await startWorker(t, {
    ...common,
    worker: { concurrentJobs: 1, localQueue: { size: 1 } },
    preset: { sweepInterval: "1 second" },
  });
  await first.utils.addJob("busy", {});
  await until("it is busy", () => busy.ends.length === 1);
  await first.utils.addJob(policy, account);
  await until("its slot is freed while it waits in the queue", async () => {
    const { n } = await first.row(
      "select count(*)::int as n from dispatch_policy.audit where verb = 'release_slots'",
    );
    return n === 1;
  });
  await table(first.pool, "policies").set({ slot_timeout: null });

  await startWorker(t, { ...common, database: first.database });
  await first.utils.addJob(policy, account);
  await until("the other one runs", () => ends.length === 1);
  busy.ends[0]!();
  await until("the first is staged again", async () => {
    const { n } = await first.row("select count(*)::int as n from dispatch_policy.staged_jobs");
    return n === 1;
  });
  t.is(ends.length, 1);
  ends[0]!();
  await until("it runs in its turn", () => ends.length === 2);
  ends[1]!();
  await first.everythingIsReleased();
});

test("releaseSlots: a job that lost its slot in a local queue, and starts later, does not run beside its successor", async (t) => {
  const policy = definePolicy("work", options);
  const busy = hands();
  const { ends, task, endAll } = hands();
  const common = { policies: [policy], tasks: { work: task, busy: busy.task } };
  const first = await startWorker(t, {
    ...common,
    worker: { concurrentJobs: 1, localQueue: { size: 1 } },
  });
  t.teardown(busy.endAll);
  await first.utils.addJob("busy", {});
  await until("it is busy", () => busy.ends.length === 1);
  let fetchedAt: number | undefined;
  first.runner.events.on("localQueue:getJobs:complete", ({ jobs }) => {
    if (jobs.length > 0) fetchedAt = performance.now();
  });
  const { id } = await first.utils.addJob(policy, account);
  const fetched = await until("it is in the queue", () => fetchedAt);
  t.deepEqual(await first.utils.releaseSlots({ jobId: id }), { matched: 1, changed: 1 });

  await startWorker(t, { ...common, database: first.database });
  t.teardown(endAll);
  await first.utils.addJob(policy, account);
  await until("its successor runs", () => ends.length === 1);
  await until("its fetch was more than a second ago", () => performance.now() - fetched > 1000);
  busy.ends[0]!();
  await until("it starts, and is staged again", async () => {
    const { n } = await first.row("select count(*)::int as n from dispatch_policy.staged_jobs");
    return n === 1 || ends.length > 1;
  });
  t.is(ends.length, 1);
  ends[0]!();
  await until("it runs in its turn", () => ends.length === 2);
  ends[1]!();
  await first.everythingIsReleased();
});

test("releaseSlots: the job goes on, its slot is free, its end frees nothing", async (t) => {
  const policy = definePolicy("work", options);
  const { ends, task } = hands();
  const worker = await startWorker(t, { policies: [policy], tasks: { work: task } });
  t.teardown(() => ends.forEach((end) => void end()));
  const first = await worker.utils.addJob(policy, account);
  await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  const why = { reason: "hangs", by: "ana" };
  t.deepEqual(await worker.utils.releaseSlots({ jobId: first.id, ...why }), { matched: 1, changed: 1 });
  await worker.sees("job:start", 2);
  t.deepEqual(
    await worker.utils.releaseSlots({ jobId: first.id }),
    { matched: 0, changed: 0 },
    "it holds none now",
  );
  const { job_id } = await worker.row("select job_id from dispatch_policy.in_flight_jobs");
  t.deepEqual(await worker.utils.releaseSlots({ jobId: job_id }), { matched: 1, changed: 1 }, "by either id");
  const { rows } = await worker.pool.query(
    "select reason, by, matched, changed from dispatch_policy.audit where verb = 'release_slots' order by id limit 1",
  );
  t.deepEqual(rows, [{ ...why, matched: 1, changed: 1 }]);
  await t.throwsAsync(worker.utils.releaseSlots({ jobId: undefined as never }), {
    instanceOf: ArgumentError,
  });
  for (const end of ends) end();
  await worker.sees("job:success", 2);
  await worker.everythingIsReleased();
});

test("releaseSlots: a job that another transaction has locked keeps its slots, and the answer says so", async (t) => {
  const policy = definePolicy("work", options);
  const { ends, task } = hands();
  const worker = await startWorker(t, { policies: [policy], tasks: { work: task } });
  t.teardown(() => ends.forEach((end) => void end()));
  const { id: jobId } = await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  const other = quietPool(worker.database.url, { max: 1 });
  t.teardown(() => other.end());
  for (const name of ["in_flight_jobs", "limiters"]) {
    await other.query("begin");
    await table(other, name).lock();
    t.deepEqual(await worker.utils.releaseSlots({ jobId }), { matched: 1, changed: 0 }, name);
    t.like(await runCommand(worker.database.url, "release-slots", jobId, "--yes"), {
      stdout: `Job ${jobId} keeps its slots: another transaction has it, or a limit\nthat it counts for, locked. Try again.\n`,
      code: 0,
    });
    await other.query("rollback");
  }
  t.deepEqual(await worker.utils.releaseSlots({ jobId }), { matched: 1, changed: 1 });
});

test("a failed job whose slot was freed meanwhile takes one again for its next attempt", async (t) => {
  const policy = definePolicy("work", { ...options, backoff: () => "1 ms" });
  let fail: (error: Error) => void = () => {};
  const { ends, task } = hands();
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      work: (_, { job }) => (job.attempts === 1 ? new Promise<void>((_ok, no) => (fail = no)) : task()),
    },
    worker: { pollInterval: 200 },
  });
  t.teardown(() => ends.forEach((end) => void end()));
  const { id } = await worker.utils.addJob(policy, account);
  await worker.sees("job:start");
  await worker.utils.releaseSlots({ jobId: id });
  fail(new Error("late"));
  await until("it runs again", () => ends.length === 1);
  t.is(
    (await worker.row("select in_flight from dispatch_policy.limiters where gate = 'concurrency'")).in_flight,
    1,
  );
  ends[0]!();
  await worker.sees("job:success");
  await worker.everythingIsReleased();
});
