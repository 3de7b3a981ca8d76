// Everything a worker and its operators do with jobs, once: for hosts and sessions of any sort.
import type { ExecutionContext } from "ava";
import type { JobHelpers } from "graphile-worker";
import { adaptiveConcurrency, concurrency, definePolicy, RetryAfter, throttle } from "../../src/index.ts";
import type { TestDatabase } from "./database.ts";
import { until } from "./until.ts";
import { startWorker } from "./worker.ts";

type Payload = { key: string; how?: "fails" | "waits" | "moves" };

export const wholeWay = definePolicy("p", {
  context: (payload: unknown) => ({ key: (payload as Payload).key }),
  partitionBy: (ctx) => ctx.key,
  gates: [
    concurrency<{ key: string }>({ max: 3 }),
    adaptiveConcurrency<{ key: string }>({ initialMax: 5, targetLagMs: 10_000, scope: "policy" }),
    throttle<{ key: string }>({ name: "all", rate: 1000, per: "1 second", scope: "policy" }),
    throttle<{ key: string }>({ name: "rare", rate: 100, per: "1 hour", scope: "policy" }),
  ],
  backoff: (_error, _attempt, job) =>
    (job.payload as Payload).how === "moves"
      ? { after: "10 milliseconds", partition: "moved" }
      : "10 milliseconds",
});

/** What a run of a job saw of itself. */
export interface Run {
  readonly payload: Payload;
  readonly attempt: number;
  readonly partition: string;
  readonly admittedAt: Date | null;
  readonly lagMs: number | null;
  /** By the clock of Node. */
  readonly startedAt: number;
}

/**
 * Fails unless each of them does what it should. Returns what the runs saw. `jobsFail` false: all succeed, for hosts where
 * Graphile Worker cannot record a failure.
 */
export async function goTheWholeWay(
  t: ExecutionContext,
  database: TestDatabase,
  { jobsFail = true } = {},
): Promise<readonly Run[]> {
  const runs: Run[] = [];
  const failing = ["fails 1", "fails 2", "moves 1", "moves 2", "waits 1", "waits 2"];
  const expected = ["many 1", "native 1", "sql 1", ...(jobsFail ? failing : [])].toSorted();
  const worker = await startWorker(t, {
    database,
    policies: [wholeWay],
    tasks: {
      async p(payload, helpers: JobHelpers) {
        const startedAt = Date.now();
        const { attempt, partition, admittedAt, lagMs, take } = helpers.dispatchPolicy!;
        const { how } = payload as Payload;
        runs.push({ payload: payload as Payload, attempt, partition, admittedAt, lagMs, startedAt });
        // not taken: a pass has the throttle locked just now
        await until("something is taken", async () => (await take({ gate: "rare" })).taken);
        if (attempt > 1) return;
        if (how === "fails" || how === "moves") throw new Error("once");
        if (how === "waits")
          throw new RetryAfter("10 milliseconds", { reason: "no tenant \0😀".slice(0, -1) });
      },
    },
  });
  const { utils, pool } = worker;
  const isDate = (value: unknown, what: string) =>
    t.true(value instanceof Date && Math.abs(value.getTime() - Date.now()) < 120_000, `${what}: ${value}`);

  const later = await utils.addJob("p", { key: "later" }, { runAt: new Date(Date.now() + 60_000) });
  t.is(typeof later.id, "string");
  for (const at of ["run_at", "created_at", "updated_at"] as const) isDate(later[at], at);
  if (jobsFail)
    for (const how of ["fails", "waits", "moves"] as const) await utils.addJob("p", { key: how, how });
  await utils.addJobs([{ identifier: "p", payload: { key: "many" } }]);
  await pool.query(`select dispatch_policy.add_job('p', '{"key": "sql"}')`);
  // A tick may be the first to add the task's name, at the same moment. Under repeatable read the caller has to try again.
  await until("the native job is added", () =>
    pool.query(`select graphile_worker.add_job('p', '{"key": "native"}')`).then(
      () => true,
      (error) => {
        if (error.code !== "40001") throw error;
        return false;
      },
    ),
  );
  const plain = await utils.addJob("plain", {}, { runAt: new Date(Date.now() + 60_000) });
  t.is(typeof plain.id, "string");
  for (const at of ["run_at", "created_at", "updated_at"] as const) isDate(plain[at], at);
  await until("all ran", () => runs.length === expected.length, { seen: () => [runs, worker.log.slice(-5)] });
  await worker.everythingIsReleased();

  const [rescheduled] = await utils.rescheduleJobs([later.id], { runAt: new Date(Date.now() + 90_000) });
  t.is(rescheduled!.id, later.id);
  isDate(rescheduled!.run_at, "the rescheduled job's run_at");
  const asked = await utils.explain({ id: later.id });
  t.like(asked, { id: later.id, partition: "later", reason: "not_due" });
  isDate(asked.runAt, "explain's runAt");
  isDate((await utils.explain({ policy: "p", partition: "sql" })).createdAt, "explain's createdAt");
  isDate((await utils.partitions({ policy: "p" }))[0]!.createdAt, "partitions' createdAt");
  const [end, start] = [new Date(Date.now() + 60_000), new Date(Date.now() + 1000)];
  await utils.setLimit({ policy: "p", gate: "all", set: { rate: 1e-6, burst: 1 }, from: start, until: end });
  t.like((await utils.limits())[0], { from: start, until: end });
  await utils.setLimit({ policy: "p", gate: "rare", set: { rate: 0 } });
  await utils.setLimit({ policy: "p", gate: "rare", set: { rate: 1e-3, per: "1 second", burst: 1 } });
  await until("nothing can be taken", async () => {
    const { taken, retryAt } = await utils.take({ policy: "p", gate: "rare" });
    if (!taken) t.true(retryAt instanceof Date);
    return !taken;
  });
  const { workers, policies } = await utils.status();
  isDate(workers[0]!.heartbeatAt, "heartbeatAt");
  t.like(policies[0], { policy: "p", staged: 1, inFlight: 0, orphaned: false });
  await utils.hold({ policy: "p", partition: "later", forMs: 60_000 });
  t.like(await utils.explain({ policy: "p", partition: "later" }), { reason: "held" });
  await utils.pause({ policy: "p", until: end });
  isDate((await utils.tick({ policy: "p" })).nextEligibleAt ?? new Date(), "nextEligibleAt");
  t.like((await utils.sweep()).repaired, { jobs: 0, counters: 0, blocked: 0 });
  await worker.stop();

  const wrong = worker.log.filter(({ level }) => level === "warning").map(({ message }) => message);
  t.deepEqual(wrong, []);
  t.deepEqual(runs.map((run) => `${run.payload.key} ${run.attempt}`).toSorted(), expected);
  return runs;
}
