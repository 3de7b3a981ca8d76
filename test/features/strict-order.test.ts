// order: "strict": one job of a partition at a time, and one that fails keeps its place.
import test, { type ExecutionContext } from "ava";
import { definePolicy } from "../../src/index.ts";
import { concurrency, engine } from "../helpers/engine.ts";
import { refusePayloads } from "../helpers/native.ts";
import { type Hands, policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const strict = (more: object = {}) =>
  policyOf("p", { order: "strict", backoff: () => "60 seconds", ...more });

/** The numbers of the jobs that run, by partition. */
const numbers = (hands: Hands, key: string) =>
  hands.running(key).map(({ payload }) => (payload as { n: number }).n);

/** Stages numbered jobs, one call each. */
async function stage(it: Scenario, key: string, first: number, last: number, spec: object = {}) {
  for (let n = first; n <= last; n++) await it.stage(`1@${key}`, { n } as never, spec);
}

/** A world in which job 1 of a has failed and is tried again in 60 s, and jobs 2 and 3 wait for it. */
async function failed(t: ExecutionContext, via: "utils" | "sql" = "utils") {
  const it = await scenario(t, strict(), { via });
  const hands = await it.hands();
  await stage(it, "a", 1, 3);
  t.like(await it.tick(), { admitted: 1 });
  await hands.end(1, "badly", "a");
  t.like(await it.tick(1), { admitted: 0 });
  const [head] = await it.rows("select id, job_id from dispatch_policy.staged_jobs where job_id is not null");
  return { it, hands, head };
}

test("scenario 42: a failed job keeps its place, and each partition runs its jobs in the order of adding", async (t) => {
  const starts: Record<string, string[]> = { a: [], b: [] };
  const fails: Record<string, number> = { a2: 2, a4: 3, b1: 1 };
  const policy = definePolicy("p", {
    partitionBy: "key",
    order: "strict",
    backoff: (_error, attempt) => (attempt < 3 ? "30 ms" : false),
  });
  const worker = await startWorker(t, {
    policies: [policy],
    worker: { concurrentJobs: 5 },
    tasks: {
      p: async (payload, { job }) => {
        const { key, n } = payload as { key: string; n: number };
        starts[key]!.push(`${n}.${job.attempts}`);
        if (job.attempts <= (fails[`${key}${n}`] ?? 0)) throw new Error("not yet");
      },
    },
  });
  for (const n of [1, 2, 3, 4, 5])
    await worker.utils.addJobs(["a", "b"].map((key) => ({ identifier: "p", payload: { key, n } })) as never);
  await worker.everythingIsReleased();
  await until("all have run", async () => starts.a!.length === 9 && starts.b!.length === 6);
  t.deepEqual(starts, {
    a: ["1.1", "2.1", "2.2", "2.3", "3.1", "4.1", "4.2", "4.3", "5.1"],
    b: ["1.1", "1.2", "2.1", "3.1", "4.1", "5.1"],
  });
});

for (const via of VIAS)
  test(`nothing passes a job that waits for its retry, and other partitions go on (${via})`, async (t) => {
    const { it, hands } = await failed(t, via);
    await stage(it, "a", 4, 4, { priority: -10 });
    await stage(it, "a", 5, 5, { runAt: new Date("2020-01-01") });
    await stage(it, "b", 1, 1);
    t.like(await it.tick(10), { admitted: 1 });
    t.deepEqual([numbers(hands, "a"), (await it.partition("a")).reason], [[], "strict_order"]);
    const order = [];
    for (let at = 120; at < 600; at += 60) {
      const { admitted } = await it.tick(at);
      if (admitted === 0) break;
      await hands.run(1, "a");
      order.push(...numbers(hands, "a"));
      await hands.end(1, "well", "a");
    }
    t.deepEqual(order, [1, 4, 5, 2, 3], "then the usual order");
  });

test("the next job goes when the one before has failed for good", async (t) => {
  const it = await scenario(t, strict({ backoff: () => false }));
  const hands = await it.hands();
  await stage(it, "a", 1, 2);
  t.like(await it.tick(), { admitted: 1 });
  t.like(await it.tick(), { admitted: 0 }, "one at a time");
  await hands.end(1, "badly", "a");
  t.like(await it.tick(), { admitted: 1 });
  await hands.run(1, "a");
  t.deepEqual(numbers(hands, "a"), [2]);
});

test("explain says what the others wait for, and until when", async (t) => {
  const { it, head } = await failed(t);
  const { rows } = await it.pool.query(
    "select id from dispatch_policy.staged_jobs where job_id is null order by id",
  );
  const [first, second] = await Promise.all(rows.map(({ id }) => it.utils.explain({ id })));
  const [due] = await it.rows("select run_at from dispatch_policy.staged_jobs where id = $1", [head.id]);
  t.like(first, { reason: "strict_order", nextAt: due.run_at, estimate: null });
  t.like(first?.mend, {
    verb: "rescheduleJobs",
    options: { ids: [String(head.id)], runAt: first!.asOf },
  });
  t.like(second?.place, { jobsBefore: 2 });
  t.regex(
    first!.sentence,
    /keeps strict order: .* tried again at \S+:\d\d\+\S+ 1 job of its partition goes before it/s,
  );
  t.like(await it.utils.explain({ id: head.id }), { state: "parked", reason: "not_due" });
  const partition = await it.utils.explain({ policy: "p", partition: "a" });
  t.like(partition, { id: String(head.id), state: "waiting", reason: "strict_order" });
  const next = await it.rows("select it ->> 'id' as id from dispatch_policy.explain_next('p', 'a') it");
  t.deepEqual(
    next.map(({ id }) => id),
    [head.id, ...rows.map(({ id }) => id)].map(String),
  );
});

for (const [how, act] of [
  ["is removed", (it: Scenario, id: string) => it.utils.remove({ ids: [id] })],
  ["is cancelled", (it: Scenario, id: string) => it.utils.cancel({ ids: [id] })],
] as const)
  test(`the others go when the job that they wait for ${how}`, async (t) => {
    const { it, hands, head } = await failed(t);
    await act(it, String(head.id));
    t.like(await it.tick(2), { admitted: 1 });
    await hands.run(1, "a");
    t.deepEqual(numbers(hands, "a"), [2]);
  });

test("a job that is set to an earlier time goes then, and before the others", async (t) => {
  const { it, hands, head } = await failed(t);
  await it.utils.rescheduleJobs([String(head.id)], { runAt: new Date() });
  t.like(await it.tick(2), { admitted: 1 });
  await hands.run(1, "a");
  t.deepEqual(numbers(hands, "a"), [1]);
});

test("a sweep leaves a partition alone that waits in order, and wakes one that waits for nothing", async (t) => {
  const { it, head } = await failed(t);
  t.like((await it.utils.sweep()).repaired, { blocked: 0, asleep: 0 });
  await table(it.pool, "staged_jobs").remove({ id: head.id });
  t.like((await it.utils.sweep()).repaired, { blocked: 1 });
});

/** Jobs of a, in the order in which they run from then on. */
async function order(it: Scenario, hands: Hands, from: number): Promise<number[]> {
  const ran = [];
  for (let at = from; at < from + 10; at++) {
    if ((await it.tick(at)).admitted === 0) continue;
    await hands.run(1, "a");
    ran.push(...numbers(hands, "a"));
    await hands.end(1, "well", "a");
  }
  return ran;
}

for (const verb of ["complete_jobs(array[$1::bigint])", "permanently_fail_jobs(array[$1::bigint], 'no')"])
  test(`the others go after a sweep when the job that they wait for has ended by graphile_worker.${verb}`, async (t) => {
    const { it, hands, head } = await failed(t);
    await it.rows(`select graphile_worker.${verb}`, [head.job_id]);
    t.like((await it.utils.sweep()).repaired, { blocked: 1 });
    t.deepEqual(await order(it, hands, 2), [2, 3]);
    t.like(await it.tick(120), { admitted: 0 }, "its time has come, and it is not admitted");
    t.is(await it.staged(), 0);
  });

test("the others go when a newer job of its key replaces the one that they wait for", async (t) => {
  const it = await scenario(t, strict());
  const hands = await it.hands();
  await stage(it, "a", 1, 1, { jobKey: "k" });
  await stage(it, "a", 2, 3);
  t.like(await it.tick(), { admitted: 1 });
  await hands.end(1, "badly", "a");
  t.like(await it.tick(1), { admitted: 0 });
  await stage(it, "a", 4, 4, { jobKey: "k" });
  t.like((await it.utils.sweep()).repaired, { blocked: 0 }, "nothing is to repair");
  t.deepEqual(await order(it, hands, 2), [2, 3, 4]);
  t.is(await it.staged(), 0);
});

test("a job that somebody retries in Graphile Worker keeps its place", async (t) => {
  const { it, hands, head } = await failed(t);
  await it.rows("select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now())", [head.job_id]);
  await until("it is copied", async () => {
    const jobs = await it.rows("select id from graphile_worker.jobs where id = $1", [head.job_id]);
    return jobs.length === 0;
  });
  t.deepEqual(await order(it, hands, 2), [1, 2, 3]);
  t.is(await it.staged(), 0);
});

test("the others wait on for a job that Graphile Worker will retry by itself", async (t) => {
  const { it, head } = await failed(t);
  await it.rows(
    "select graphile_worker.reschedule_jobs(array[$1::bigint], run_at => now() + interval '1 day')",
    [head.job_id],
  );
  t.like((await it.utils.sweep()).repaired, { blocked: 0 });
  t.like(await it.tick(2), { admitted: 0 });
});

const one = [concurrency(1, { name: "strict_order" })];

test("a job that Graphile Worker refuses keeps its place", async (t) => {
  const it = await engine(t, { gates: one, order: "strict" });
  const accept = await refusePayloads(it.pool, "bad");
  await it.stage("a", { jobKey: "bad" });
  await it.table("staged_jobs").set({ payload: { bad: true } });
  await it.stage("a");
  t.is(await it.passes(3), 0);
  t.like(await it.partition("a"), { denied_reason: "strict_order" });
  await accept();
  const [first, second] = (
    await it.pool.query("select id, retry_at from dispatch_policy.staged_jobs order by id")
  ).rows;
  t.is((await it.admit({ now: new Date(first.retry_at.getTime() + 1000) })).admitted, 1);
  t.deepEqual(
    (await it.pool.query("select id from dispatch_policy.staged_jobs")).rows.map(({ id }) => id),
    [second.id],
  );
});

test("a job whose arrival is not routed yet is not passed", async (t) => {
  const it = await engine(t, { gates: one, order: "strict" });
  const [first] = await it.stage("a");
  await it.route();
  await it.admit();
  await it.finish(await it.inFlight());
  const [early] = await it.stage("a");
  const held = await it.table("arrivals").remove();
  await it.stage("a");
  await it.route();
  t.is((await it.admit()).admitted, 1);
  t.is(held, 1);
  const { rows } = await it.pool.query("select staged_id from dispatch_policy.in_flight_jobs");
  t.deepEqual(
    rows.map(({ staged_id }) => staged_id),
    [early],
  );
  t.not(first, early);
});

test("a native job does not run before those that are staged", async (t) => {
  const policy = definePolicy("p", { partitionBy: "key", order: "strict", backoff: () => "1 hour" });
  const ran: number[] = [];
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: {
      p: async (payload) => {
        const { n } = payload as { n: number };
        ran.push(n);
        if (n === 1) throw new Error("not yet");
      },
    },
  });
  await worker.utils.addJob("p", { key: "a", n: 1 } as never);
  await worker.sees("job:error");
  await until("it waits for its retry", async () =>
    worker.row("select from dispatch_policy.staged_jobs where job_id is not null"),
  );
  await worker.pool.query(`select graphile_worker.add_job('p', '{"key": "a", "n": 2}')`);
  await until("it is staged", async () => {
    const row = await worker.row("select count(*)::int as n from dispatch_policy.staged_jobs");
    return row.n === 2;
  });
  t.deepEqual(ran, [1]);
});
