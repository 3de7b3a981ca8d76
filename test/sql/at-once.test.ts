// A job goes in the call that adds it, if nothing goes before it. Else it is staged, and a pass decides.
import test, { type ExecutionContext } from "ava";
import {
  adaptive,
  calendar,
  concurrency,
  Engine,
  type EngineOptions,
  engine,
  MONTH,
  type StageOptions,
  share,
  sliding,
  smooth,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { poolLives } from "../helpers/native.ts";
import { asText, durations, table, workerTable } from "../helpers/table.ts";

const START = Date.UTC(2100, 0, 1);
const SLOW = { per: 1e6 };
const HOUR_MS = 3_600_000;

const at = (seconds: number) => new Date(START + seconds * 1000);

async function tick(it: Engine, seconds: number): Promise<number> {
  await it.pool.query("select dispatch_policy_internal._route($1, $2, 10000)", [it.policy, at(seconds)]);
  return (await it.admit({ now: at(seconds) })).admitted;
}

/** A job of `a` ran from second 0 to second 10. */
async function used(it: Engine): Promise<void> {
  await it.stage("a", { runAt: at(0) });
  await tick(it, 0);
  const [job] = await it.inFlight();
  await it.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  const ended = [{ job, ok: true, ends: true, lagMs: 5, durationMs: 10_000, task: it.policy }];
  await it.pool.query("select dispatch_policy_internal._release($1, $2)", [JSON.stringify(ended), at(10)]);
  await tick(it, 10);
}

/** What the job has left behind, without what no two jobs have in common. */
async function rows(it: Engine): Promise<object> {
  const db = asText(it.pool);
  const { id: policy_id } = await table(db, "policies").one({ name: it.policy });
  const of = (name: string, order?: string) => table(db, name).all({ policy_id }, order);
  const [limiters, activity] = [await of("limiters", "gate"), await of("activity", "id")];
  const jobs = await db.query("select * from graphile_worker.jobs where task_identifier = $1", [it.policy]);
  const gates = (ids: string) =>
    limiters.filter(({ id }) => ids.slice(1, -1).split(",").includes(id)).map(({ gate }) => gate);
  const sum = (field: string) => activity.reduce((all, row) => all + Number(row[field]), 0);
  return {
    limiters: limiters.map((row) =>
      without(row, "id policy_id arrival_id version finished_per_second ending durations"),
    ),
    partitions: (await of("partitions")).map((row) =>
      without(row, "id lane_of policy_id limiter_ids arrival_id visited created_at probe_job_id"),
    ),
    in_flight: (await of("in_flight_jobs")).map(({ limiter_ids, ...row }) => ({
      ...without(row, "job_id staged_id policy_id partition_id admission revision"),
      gates: gates(limiter_ids),
    })),
    jobs: jobs.rows.map((row) => without(row, "id created_at updated_at run_at flags task_identifier")),
    counted: [sum("staged"), sum("admitted")],
    waits: activity.filter(({ admitted }) => admitted > 0).map(({ waits }) => waits),
    staged: await table(db, "staged_jobs").count({ task_identifier: it.policy }),
  };
}

const without = (row: object, fields: string) =>
  Object.fromEntries(Object.entries(row).filter(([field]) => !fields.split(" ").includes(field)));

const LIKE_A_PASS: Record<string, Partial<EngineOptions> & { gates: readonly TestGate[] }> = {
  "no gate": { gates: [] },
  concurrency: { gates: [concurrency(3)] },
  "a bucket": { gates: [throttle(5, { burst: 7 })] },
  "a bucket of the policy": { gates: [throttle(5, { ...SLOW, scope: "policy" }), concurrency(3)] },
  "a scope of its own": {
    gates: [concurrency(3, { scope: () => "k" }), throttle(9, { ...SLOW, name: "t" })],
  },
  "even spaces": { gates: [smooth(5)] },
  "a sliding window": { gates: [sliding(5, SLOW)] },
  "a calendar window": { gates: [calendar(5, MONTH)] },
  "an adaptive cap": { gates: [adaptive(4)] },
  "fairness by work": { gates: [concurrency(3)], fairBy: "work" },
  "no fairness": { gates: [concurrency(3)], halfLifeSeconds: null },
  "strict order": { gates: [concurrency(1, { name: "strict_order" })], order: "strict" },
  deadlines: { gates: [concurrency(3)], order: "deadline" },
  "the ahead bound": { gates: [concurrency(3)], ahead: 5 },
  "a time ahead": { gates: [concurrency(3)], ahead: { seconds: 2 } },
};

for (const [name, options] of Object.entries(LIKE_A_PASS)) {
  test(`it leaves the same rows as a pass: ${name}`, async (t) => {
    const passed = await engine(t, options);
    const gone = new Engine(passed.url, passed.pool, { ...options, policy: "q" });
    await gone.declare();
    const job: StageOptions = {
      runAt: at(20),
      cost: 2,
      priority: 3,
      ...(options.order === "deadline" && { deadline: at(500) }),
    };
    for (const it of [passed, gone]) {
      await poolLives(it, `pool of ${it.policy}`);
      await used(it);
    }
    await passed.stage("a", job);
    await passed.table("staged_jobs").set({ created_at: at(21) });
    t.is(await tick(passed, 21), 1);
    await gone.isLed("default", at(30));
    t.like(await gone.addAlone("a", { ...job, now: at(21) }), { admitted: true });
    t.deepEqual(await rows(gone), await rows(passed));
  });
}

interface Refusal extends Partial<EngineOptions> {
  /** What is so before the job comes. */
  readonly when?: (it: Engine) => Promise<unknown>;
  readonly job?: StageOptions;
}

const set = (name: string, values: object) => (it: Engine) => it.table(name).set({ ...values });
const SOON = () => "now() + interval '1 hour'";

const LEFT_TO_A_PASS: Record<string, Refusal> = {
  "nobody leads": { when: set("leases", { holder: "other", shard: "other" }) },
  "the lease is over": { when: set("leases", { expires_at: () => "now()" }) },
  "the lease runs for longer than any": {
    when: set("leases", { expires_at: () => "now() + interval '1 day'" }),
  },
  "the partition is new": { when: (it) => it.table("partitions").remove() },
  "it has other limits": { job: { gates: [concurrency(4)] } },
  "it has another context": { job: { context: { plan: "pro" } } },
  "it has another weight": { job: { weight: 2 } },
  "the partition has limits of a newer definition": { when: set("partitions", { version: 1 }) },
  "it is due later": { job: { runAt: new Date(Date.now() + HOUR_MS) } },
  "it has expired": { job: { expiresAt: new Date(Date.now() - HOUR_MS) } },
  "it has a job key": { job: { jobKey: "k" } },
  "it has a queue": { job: { queueName: "queue" } },
  "it has flags": { job: { flags: ["flag"] } },
  "a job of its partition waits for the router": { when: (it) => it.stage("a") },
  "a job of another partition waits for the router": { when: (it) => it.stage("b") },
  "a job of its partition is due": { when: (it) => it.stage("a").then(() => it.route()) },
  "another partition is eligible": { when: (it) => it.stage("b").then(() => it.route()) },
  "another partition waits for a limiter that both use, and needs more of it": {
    gates: [throttle(3, { ...SLOW, scope: "policy" })],
    when: async (it) => {
      await it.stage("b", { cost: 3 });
      await it.passes(2);
    },
  },
  "a job waits for its partition key": {
    when: (it) =>
      it.pool.query("select dispatch_policy.add_job('p', '{}')").then(() => it.number("select 1")),
  },
  "no slot is free": {
    gates: [concurrency(1)],
    when: (it) => it.addAlone("a"),
  },
  "tokens lack": { gates: [throttle(1, SLOW)], job: { cost: 2 } },
  "the rate is zero": {
    gates: [throttle(1, { ...SLOW, burst: 5 })],
    when: async (it) => {
      await it.pool.query(
        `select dispatch_policy.set_limit(policy => 'p', gate => 'throttle', set => '{"rate": 0}')`,
      );
      await it.route();
    },
  },
  "the numbers of a limiter that others share are another job's": {
    gates: [concurrency(3, { scope: "policy" })],
    when: async (it) => {
      await it.stage("b", { gates: [concurrency(5, { scope: "policy" })] });
      await it.passes();
    },
  },
  "the ahead bound is reached": { ahead: 0, when: (it) => poolLives(it, "pool", 0) },
  "a gate is a shadow": { gates: [{ ...concurrency(3), shadow: true }] },
  "a gate has a share for each worker": { gates: [share(3)] },
  "the policy has a budget": { budget: 10 },
  "the backlog is bounded": { maxPending: { policy: 100, whenFull: "reject" } },
  "the policy has a history": { when: set("policies", { history_kept_for: 60 }) },
  "the policy records its load": { when: set("policies", { load_kept_for: 60 }) },
  "the policy is paused": { when: (it) => it.pool.query("select dispatch_policy.pause(policy => 'p')") },
  "the partition is paused": {
    when: (it) =>
      it.pool.query("select dispatch_policy.pause(policy => 'p', partition => 'a')").then(() => it.route()),
  },
  "the partition is probed": { when: set("partitions", { probing: true }) },
  "the partition is held": { when: set("partitions", { held_until: SOON }) },
  "the partition is denied until later": {
    when: set("partitions", { denied_until: SOON }),
  },
  "a job of its partition has begun, in strict order": {
    gates: [concurrency(1, { name: "strict_order" })],
    order: "strict",
    when: (it) => it.stage("a", { runAt: new Date(Date.now() + HOUR_MS) }).then(() => it.route()),
  },
};

/** A tick loop leads, a worker lives, and partition `a` has nothing to do. */
async function atRest(t: ExecutionContext, options: Partial<EngineOptions> = {}): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(3)], ...options });
  await poolLives(it, "pool");
  await it.isLed();
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  await it.route();
  return it;
}

for (const [name, { when, job, ...options }] of Object.entries(LEFT_TO_A_PASS)) {
  test(`it is staged: ${name}`, async (t) => {
    const it = await atRest(t, options);
    await when?.(it);
    const [staged, inFlight] = [await it.staged(), (await it.inFlight()).length];
    t.like(await it.addAlone("a", job), { admitted: false });
    t.is(await it.staged(), staged + 1);
    t.is((await it.inFlight()).length, inFlight);
    t.is(await it.wrongCounters(), 0);
  });
}

test("it goes at once if none of this is so, whatever is due later, and its start is believed", async (t) => {
  const it = await atRest(t);
  await it.stage("a", { runAt: new Date(Date.now() + HOUR_MS) });
  await it.route();
  const { id, admitted } = await it.addAlone("a", { expiresAt: new Date(Date.now() + HOUR_MS) });
  t.true(admitted);
  t.is(await it.staged(), 1);
  const { job_id, staged_id, admission } = await it.table("in_flight_jobs").one();
  const admitting =
    "select (extract(epoch from updated_at) * 1000000)::bigint from graphile_worker.jobs where id = $1";
  t.deepEqual([staged_id, admission], [id, await it.number(admitting, [job_id])]);
  await it.finish(await it.inFlight());
  t.like(await it.leftovers(), { staged: 1, in_flight: 0, counters: 0, notes: 0, blocked: 0 });
});

for (const gate of [concurrency(3), throttle(3, SLOW), sliding(3, SLOW), calendar(3, MONTH)]) {
  test(`of ten jobs, three go through a ${gate.kind}${gate.sliding ? ", sliding" : ""}${gate.calendar ?? ""}`, async (t) => {
    const it = await atRest(t, { gates: [gate] });
    await it.table("limiters").set({ tokens: 3, spent: [] }, { by_tokens: true });
    const went: boolean[] = [];
    for (let n = 0; n < 10; n++) went.push((await it.addAlone("a")).admitted);
    t.deepEqual(went, [true, true, true, ...Array(7).fill(false)]);
    t.is((await it.inFlight()).length, 3);
    t.is(await it.passes(3), 0);
  });
}

test("a job of a partition of which nothing went for a second starts before those that Graphile Worker has", async (t) => {
  const it = await atRest(t);
  const early = `select extract(epoch from now() - run_at) > 0.85 from graphile_worker.jobs order by id desc limit 1`;
  await it.addAlone("a");
  t.is(await it.number(early), false as never);
  await it.table("partitions").set({ admitted_at: () => "now() - interval '2 seconds'" });
  t.like(await it.addAlone("a"), { admitted: true });
  t.is(await it.number(early), true as never);
});

test("a cost that no staged job may have is refused, as before", async (t) => {
  const it = await atRest(t, { gates: [throttle(3, SLOW)] });
  for (const cost of [-5, 1e13])
    await t.throwsAsync(it.addAlone("a", { cost }), { message: /violates check constraint/ });
  t.deepEqual(await it.inFlight(), []);
});

test("a job of a long task goes at once only if a worker slot is free", async (t) => {
  const it = await atRest(t, { gates: [concurrency(9)], ahead: { seconds: 1 }, otherTasks: ["short"] });
  const alive =
    "select dispatch_policy_internal._worker_alive('pool', 2, '{p,short}', 'host', 1, '1 hour', '0')";
  await it.pool.query(alive);
  const ended = { finished_per_second: 10, released: 0, sampled_released: 0 };
  await it.table("limiters").set({ ...ended, durations: durations({ short: 0.1 }) }, { kind: "ahead" });
  const went = [];
  for (const task of ["short", "p", "p", "short"]) went.push((await it.addAlone("a", { task })).admitted);
  t.deepEqual(went, [true, true, false, false], "what comes behind it waits as well");
});

test("what Graphile Worker refuses is staged, and the pass reports it", async (t) => {
  const it = await atRest(t);
  await workerTable(it.pool).before("insert", "raise 'no more'");
  t.like(await it.addAlone("a"), { admitted: false });
  t.is(await it.staged("a"), 1);
  t.is((await it.limiter("concurrency", "a")).in_flight, 0);
  await it.route();
  t.like(await it.admit(), { admitted: 0, quarantined: 1 });
});

test("under another isolation level it is staged", async (t) => {
  const it = await atRest(t);
  const session = await it.session();
  await session.query("set default_transaction_isolation = 'repeatable read'");
  t.like(await it.addAlone("a", { as: session }), { admitted: false });
  t.is(await it.staged("a"), 1);
});
