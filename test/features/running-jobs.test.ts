// What a task of a policy sees, and what is said about jobs.
import test from "ava";
import type { JobHelpers } from "graphile-worker";
import type pg from "pg";
import { z } from "zod";
import { definePolicy, fixed } from "../../src/index.ts";
import { ROUNDED_MS } from "../helpers/clock.ts";
import { isChecked, startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", {
  payload: z.object({ account: z.string(), times: z.number().default(3) }),
  context: ({ account }) => ({ account }),
  partitionBy: (ctx) => ctx.account,
  gates: ({ throttle, concurrency }) => [throttle({ rate: 2, per: "1 hour" }), concurrency({ max: 10 })],
});

test("helpers.dispatchPolicy, and the parsed payload", async (t) => {
  const seen: unknown[] = [];
  let addedAt = 0;
  const task = work.task(async (payload, { dispatchPolicy, job, query }) => {
    const { policy, partition, stagedId, attempt, admittedAt, lagMs } = dispatchPolicy;
    const { rows } = await query("select admitted_at from dispatch_policy.in_flight_jobs");
    const late = Math.abs((admittedAt?.getTime() ?? 0) - rows[0]!.admitted_at.getTime());
    seen.push({ policy, partition, stagedId, attempt, payload, late: late < 5000, stored: job.payload });
    const atMost = Date.now() - addedAt + ROUNDED_MS;
    t.true(lagMs !== null && lagMs >= 0 && lagMs <= atMost, `${lagMs} of at most ${atMost}`);
    seen.push(await dispatchPolicy.take({ gate: "throttle" }));
    seen.push((await dispatchPolicy.take({ gate: "throttle" })).taken);
    await dispatchPolicy.hold({ forMs: 3_600_000, reason: "429" });
  });
  const worker = await startWorker(t, { policies: [work], tasks: { work: task } });
  addedAt = Date.now();
  const { id } = await worker.utils.addJob(work, { account: "a" });
  await worker.sees("job:success");
  t.deepEqual(seen, [
    {
      ...{ policy: "work", partition: "a", stagedId: id, attempt: 1, late: true },
      ...{ payload: { account: "a", times: 3 }, stored: { account: "a" } },
    },
    { taken: true, retryAt: null },
    false,
  ]);
  const { stop_reason } = await worker.row("select stop_reason from dispatch_policy.partitions");
  t.is(stop_reason, "429");
});

test("an idempotency key stays with a job through its runs, staged or added past its policy", async (t) => {
  const keys = new Map<string, string[]>();
  const policy = definePolicy("pay", { partitionBy: "n", backoff: fixed("1 ms") });
  const task = policy.task((payload, { dispatchPolicy, job }) => {
    const { n } = payload as { n: string };
    keys.set(n, [...(keys.get(n) ?? []), dispatchPolicy.idempotencyKey()]);
    if (job.attempts < 3) throw new Error("again");
  });
  const worker = await startWorker(t, { policies: [policy], tasks: { pay: task } });
  for (const n of ["a", "b"]) await worker.utils.addJob(policy, { z: 1, n, a: { d: 1, c: [null] } });
  await worker.utils.addJob(policy, { z: 1, n: "a", a: { d: 1, c: [null] } });
  await worker.pool.query(`select graphile_worker.add_job('pay', '{"z": 1, "n": "past", "a": 1}')`);
  await worker.sees("job:success", 4);
  const all = [...keys.values()];
  t.deepEqual(all.map(({ length }) => length).sort(), [3, 3, 6]);
  t.is(new Set(all.flat()).size, 4);
  t.true(
    all.flat().every((key) => /^[\da-f]{8}-[\da-f]{4}-8[\da-f]{3}-[89ab][\da-f]{3}-[\da-f]{12}$/.test(key)),
  );
});

test("queue lag counts from the admission: the wait for a throttle's token is not in it", async (t) => {
  const paced = definePolicy("paced", {
    partitionBy: "key",
    gates: ({ throttle }) => [throttle({ rate: 2, burst: 1, per: "1 second" })],
  });
  const runs: { lagMs: number; waitedMs: number; fetchedMs: number; startedMs: number }[] = [];
  const task = paced.task((_payload, { dispatchPolicy: { lagMs, admittedAt }, job }) => {
    const admitted = admittedAt!.getTime();
    // an admission has the time at which its transaction began, and the job that at which it was inserted
    const fetchedMs = job.locked_at!.getTime() - Math.max(admitted, job.run_at.getTime());
    runs.push({ lagMs: lagMs!, waitedMs: admitted - addedAt, fetchedMs, startedMs: Date.now() - admitted });
  });
  const worker = await startWorker(t, { policies: [paced], tasks: { paced: task } });
  const addedAt = Date.now();
  await worker.utils.addJobs(Array(3).fill({ identifier: "paced", payload: { key: "a" } }));
  await worker.sees("job:success", 3);
  t.true(runs.at(-1)!.waitedMs > 900, "the third waited for two tokens");
  for (const { lagMs, fetchedMs, startedMs } of runs) {
    const told = `${lagMs}, fetched after ${fetchedMs}, started after ${startedMs} ms`;
    t.true(lagMs >= fetchedMs - ROUNDED_MS, told);
    t.true(lagMs <= startedMs + ROUNDED_MS, told);
  }
});

test("what tasks add is staged, in tasks with and without a policy", async (t) => {
  const added: unknown[] = [];
  const tasks = {
    work: async () => {},
    plain: async (_payload: unknown, helpers: JobHelpers) => {
      added.push(await helpers.addJob("work", { account: "a" }));
      added.push(...(await helpers.addJobs([{ identifier: "work", payload: { account: "b" } }])));
      added.push(await helpers.addJob("quiet", {}));
    },
    quiet: async () => {},
  };
  const worker = await startWorker(t, { policies: [work], tasks });
  await worker.utils.addJob("plain", {});
  await worker.sees("job:success", 4);
  t.deepEqual(
    added.map((job) => (job as { staged: boolean }).staged),
    [true, true, false],
  );
});

test("the log: one line at the start, and never a payload", async (t) => {
  const tasks = {
    work: async () => {
      throw new Error("broken");
    },
  };
  const worker = await startWorker(t, { policies: [work], tasks });
  await worker.utils.addJob(work, { account: "s3cret" });
  await worker.sees("job:error");
  await worker.everythingIsReleased();
  await worker.stop();
  const own = worker.log.filter(({ scope }) => scope.label === "dispatch-policy");
  t.deepEqual(
    own.filter(({ level }) => level !== "debug").map(({ level, message }) => `${level}: ${message}`),
    ['info: Started with policy "work"; this worker leads 1 shard'],
  );
  t.false(JSON.stringify(own.map(({ message, meta }) => [message, meta])).includes("s3cret"));
});

test("a job staged from SQL whose key only a function can tell is completed by the loop", async (t) => {
  const worker = await startWorker(t, { policies: [work], tasks: { work: async () => {} } });
  await worker.pool.query(`select dispatch_policy.add_job('work', '{"account": "from SQL"}')`);
  await worker.sees("job:success");
  const { partition } = await worker.row("select partition from dispatch_policy.partitions");
  t.is(partition, "from SQL");
});

for (const [what, slotTimeout, queries] of [
  ["an ordinary first attempt", undefined, 0],
  ["one of a policy with a slotTimeout", "1 hour", 1],
] as const) {
  test(`${what} costs ${queries} queries of the worker's pool from its fetch to its end`, async (t) => {
    const policy = definePolicy("counted", {
      partitionBy: "account",
      gates: ({ concurrency }) => [concurrency({ max: 1 })],
      slotTimeout,
    });
    const asked: string[] = [];
    const worker = await startWorker(t, { policies: [policy], tasks: { counted: async () => {} } });
    await isChecked(worker.log);
    let isFetched = false;
    const watched = new Set<pg.PoolClient>();
    worker.pool.on("acquire", (client) => {
      if (watched.has(client)) return;
      watched.add(client);
      const query = client.query.bind(client) as (...args: unknown[]) => unknown;
      client.query = ((...args: unknown[]) => {
        const [first] = args as [string | { text?: string }];
        if (isFetched) asked.push(typeof first === "string" ? first : (first.text ?? ""));
        return query(...args);
      }) as typeof client.query;
    });
    worker.runner.events.on("job:start", () => {
      isFetched = true;
    });
    await worker.utils.addJob(policy, { account: "a" });
    await worker.sees("job:success");
    t.true(
      asked.some((text) => text.includes("graphile_worker")),
      "its end is seen",
    );
    const own = asked.filter((text) => text.includes("dispatch_policy"));
    t.is(own.length, queries, own.join("\n"));
  });
}
