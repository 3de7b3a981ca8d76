// Why a job waits: each cause is planted, and `explain` names it, its gate, who holds it, its end and its author.
import test, { type ExecutionContext } from "ava";
import {
  adaptive,
  calendar,
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  MONTH,
  share,
  sliding,
  type TestGate,
  throttle,
} from "../helpers/engine.ts";
import { QUIET_MINUTE } from "../helpers/minutes.ts";
import { admissionOf, failJob, fetchJob } from "../helpers/native.ts";
import { workerTable } from "../helpers/table.ts";

// biome-ignore lint/suspicious/noExplicitAny: json of any shape
type Explained = any;

/** As an id, or as a policy and a partition. */
async function explain({ pool }: Engine, id: string | { partition: string }): Promise<Explained> {
  const { rows } = await (typeof id === "string"
    ? pool.query("select dispatch_policy.explain($1::bigint) as it", [id])
    : pool.query("select dispatch_policy.explain(policy => 'p', partition => $1) as it", [id.partition]));
  return rows[0].it;
}

/** A job of partition a waits behind one of partition b, which was admitted. */
async function waiting(
  t: ExecutionContext,
  gates: readonly TestGate[],
  options: Partial<EngineOptions> = {},
) {
  const world = await engine(t, { gates, ...options });
  await world.stage("b");
  t.is(await world.passes(), 1);
  const [id] = await world.stage("a");
  t.is(await world.passes(), 0);
  const [holder] = await world.inFlight();
  return { world, id: id!, holder: holder! };
}

/** The explanation of a job, which that of its partition agrees with. */
async function agreed(t: ExecutionContext, world: Engine, id: string): Promise<Explained> {
  const job = await explain(world, id);
  const partition = await explain(world, { partition: "a" });
  for (const part of ["reason", "gate", "stop"]) t.deepEqual(partition[part], job[part], part);
  return job;
}

test("the next jobs come in the order in which they go, and those that are not due last", async (t) => {
  const world = await engine(t, { gates: [concurrency(0)] });
  const [first, last] = await world.stage(["a", "a", "b"]);
  const [urgent] = await world.stage("a", { priority: -1 });
  const [later] = await world.stage("a", { priority: -9, runAt: new Date(Date.now() + 3_600_000) });
  await world.passes();
  const next = async (count: number | null) => {
    const { rows } = await world.pool.query("select it from dispatch_policy.explain_next('p', 'a', $1) it", [
      count,
    ]);
    return rows.map(({ it }) => it);
  };
  const found = await next(5);
  t.deepEqual(
    found.map(({ id }) => id),
    [urgent, first, last, later],
  );
  t.deepEqual(
    found.map(({ reason }) => reason),
    [...Array(3).fill("max_zero"), "not_due"],
  );
  const { as_of: _, ...job } = await explain(world, first!);
  t.like(found[1], { state: job.state, sentence: job.sentence, place: job.place });
  t.deepEqual(
    (await next(1)).map(({ id }) => id),
    [urgent],
  );
  for (const count of [0, 51, null])
    await t.throwsAsync(next(count), { message: /explain_next: count is (0|51|null), expected 1 to 50/ });
  t.deepEqual((await world.pool.query("select dispatch_policy.explain_next('p', 'none')")).rows, []);
});

test("throttled: the gate, the tokens and the next time", async (t) => {
  const { world, id } = await waiting(t, [throttle(1, { per: 3600, scope: "policy", name: "partner" })]);
  const it = await agreed(t, world, id);
  t.like(it, { state: "staged", reason: "throttle_empty", gate: "partner", policy: "p", partition: "a" });
  const [gate] = it.gates;
  t.like(gate, { lacks: true, scope: "policy", key: null, source: "policy", set_by: null, holders: [] });
  t.like(gate.limit, { rate: 1, per: 3600, capacity: 1, sliding: false });
  const wait = new Date(it.next_at).getTime() - new Date(it.as_of).getTime();
  t.true(wait > 3_500_000 && wait <= 3_600_000, `${wait}`);
  t.regex(
    it.sentence,
    /It waits for tokens of gate "partner": 0\.0\d of 1\.00 are left, enough in (59|60) min\./,
  );
});

test("a rate of 0 leaves no tokens, however many the bucket had", async (t) => {
  const world = await engine(t, { gates: [throttle(5, { per: 60, scope: "policy", name: "partner" })] });
  await world.pool.query(`select dispatch_policy.set_limit('p', 'partner', '{"rate": 0}', by => 'ana')`);
  const [id] = await world.stage("a");
  t.is(await world.passes(), 0);
  const it = await explain(world, id!);
  t.like(it, { reason: "rate_zero", gate: "partner", next_at: null });
  t.like(it.gates[0], { lacks: true, free: 0, source: "override" });
});

test("throttled by a sliding window: the next time is when enough has left it", async (t) => {
  const { world, id } = await waiting(t, [sliding(1, { per: 100, scope: "policy", name: "window" })]);
  const it = await explain(world, id);
  t.like(it, { reason: "throttle_empty", gate: "window" });
  t.true(it.gates[0].limit.sliding);
  const wait = new Date(it.next_at).getTime() - new Date(it.as_of).getTime();
  t.true(wait > 0 && wait <= 100_000, `${wait}`);
});

test("throttled by a calendar window: the unit and the zone, and when it ends", async (t) => {
  const { world, id } = await waiting(t, [calendar(1, MONTH, { scope: "policy", name: "quota" })]);
  const it = await explain(world, id);
  t.like(it, { reason: "throttle_empty", gate: "quota" });
  t.like(it.gates[0].limit, { rate: 1, per: 2_592_000, capacity: 1, sliding: false, calendar: MONTH });
  const [unit, zone] = MONTH.split(" ");
  const { rows } = await world.pool.query(
    "select (date_trunc('month', now() at time zone $1) + interval '1 month') at time zone $1 as end",
    [zone],
  );
  t.deepEqual(new Date(it.next_at), rows[0].end);
  t.regex(
    it.sentence,
    new RegExp(
      `It waits for tokens of gate "quota": 0\\.00 of 1\\.00 per ${unit} in ${zone} are left, enough in `,
    ),
  );
  const { rows: views } = await world.pool.query(
    "select rate, per, sliding, calendar, available from dispatch_policy.limiters where gate = 'quota'",
  );
  t.deepEqual(views, [{ rate: 1, per: 2_592_000, sliding: false, calendar: MONTH, available: 0 }]);
});

test("its own slot is full: who holds it", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [, id] = await world.stage(["a", "a"]);
  t.is(await world.passes(2), 1);
  const [holder] = await world.inFlight();
  await fetchJob(world, holder!, "worker-1");
  const it = await agreed(t, world, id!);
  t.like(it, { reason: "concurrency_full", gate: "concurrency", next_at: null });
  t.like(it.gates[0], { used: 1, free: 0, lacks: true, scope: "partition", key: "a" });
  t.like(it.gates[0].holders[0], { job_id: holder, partition: "a", worker_id: "worker-1" });
  t.regex(
    it.sentence,
    new RegExp(
      `It waits for gate "concurrency" of a: 1 of 1 are in flight, the oldest for .* \\(job ${holder}\\)\\.`,
    ),
  );
  const running = await explain(world, holder!);
  t.like(running, { state: "running", job_id: holder, policy: "p", partition: "a", worker_id: "worker-1" });
  t.regex(running.sentence, /^It has run for /);
});

test("a shared slot is full: another partition's job holds it", async (t) => {
  const { world, id, holder } = await waiting(t, [concurrency(1, { name: "account", scope: () => "acme" })]);
  const it = await agreed(t, world, id);
  t.like(it, { reason: "concurrency_full", gate: "account" });
  t.like(it.gates[0], { scope: "key", key: "acme" });
  t.like(it.gates[0].holders[0], { job_id: holder, partition: "b" });
  t.like(await explain(world, holder), { state: "admitted", reason: null });
});

for (const [what, gate, mend] of [
  ["of its own by one job", concurrency(1), ["set_limit", { max: 2 }]],
  ["per worker by one for each", share(1, { scope: "policy" }), ["set_limit", { max: 2 }]],
  ["of 0 to 1", concurrency(0), ["set_limit", { max: 1 }]],
  ["that is learnt not at all: one job goes past it", adaptive(1), ["admit", undefined]],
] as const)
  test(`what mends it raises a limit ${what}`, async (t) => {
    const world = await engine(t, { gates: [gate] });
    const ids = await world.stage(["a", "a"]);
    await world.passes(2);
    await world.table("policies").set({ crontab_ticked_at: () => "now()" });
    const it = await explain(world, ids[1]!);
    t.deepEqual([it.mend.verb, it.mend.options.set], [...mend], it.sentence);
  });

test("a limit that somebody set: who, why and until when", async (t) => {
  const { world, id } = await waiting(t, [concurrency(5, { name: "account", scope: "policy" })], {
    ahead: 1,
  });
  await world.pool.query(
    `select dispatch_policy.set_limit('p', 'account', '{"max": 1}', until => '2100-01-02T03:04Z',
       reason => 'partner is down', by => 'ana')`,
  );
  const it = await explain(world, id);
  const { set_by, source, limit } = it.gates[0];
  t.like(set_by, { by: "ana", reason: "partner is down" });
  t.is(new Date(set_by.until).toISOString(), "2100-01-02T03:04:00.000Z");
  t.deepEqual([source, limit.max], ["override", 1]);
  t.is(it.gate, "account", "of two gates without room, the one that a pass would name");
  t.is(it.mend.verb, "clear_limit", "it allows less than the policy");
  await world.pool.query(`select dispatch_policy.set_limit('p', 'account', '{"max": 6}', by => 'ana')`);
  t.false((await explain(world, id)).gates[0].set_by.lowers);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'account', '{"max": 0}', by => 'ana')`);
  t.is((await explain(world, id)).gates[0].reason, "max_zero");
});

test("a limit for a key that jobs spell otherwise is named", async (t) => {
  const world = await engine(t, { gates: [throttle(1, { per: 3600 })] });
  const [, id] = await world.stage(["a", "a"]);
  t.is(await world.passes(), 1);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 100}', 'a ')`);
  const it = await explain(world, id!);
  t.is(it.gates[0].misspelt, "a ");
  t.regex(it.sentence, /A limit of gate "throttle" is set for "a ", which no job has\./);
  await world.pool.query(`select dispatch_policy.set_limit('p', 'throttle', '{"rate": 100}', 'a')`);
  t.is((await explain(world, id!)).gates[0].misspelt, null);
});

test("a partition that waits for tokens says when all of its jobs have theirs", async (t) => {
  const world = await engine(t, { gates: [throttle(2, { per: 60 })] });
  await world.stage(Array(12).fill("a"));
  t.is(await world.passes(2), 2);
  const it = await explain(world, { partition: "a" });
  t.is(it.backlog.jobs, 10);
  t.true(it.backlog.seconds > 290 && it.backlog.seconds <= 300, String(it.backlog.seconds));
  t.regex(it.sentence, /All 10 jobs of its partition have their tokens in 5 min\./);
});

test("a limit by context, and one for every key: for what it was set", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [, id] = await world.stage(["a", "a"], { context: { tenant_plan: "free" } });
  t.is(await world.passes(), 1);
  const reach = async (options: string) => {
    await world.pool.query(`select dispatch_policy.set_limit('p', 'concurrency', '{"max": 1}', ${options})`);
    const { gates, sentence } = await explain(world, id!);
    return { ...gates[0].set_by, sentence };
  };
  const every = await reach("by => 'ana'");
  t.like(every, { key: null, where: null });
  t.regex(every.sentence, /ana set this limit for every key\./);
  const some = await reach(`"where" => '{"tenant_plan": "free"}', by => 'eve'`);
  t.like(some, { key: null, where: { tenant_plan: "free" } });
  t.regex(some.sentence, /eve set this limit for partitions with {"tenant_plan": "free"}\./);
  const { key, where, sentence } = await reach("key => 'a', by => 'bob'");
  t.deepEqual([key, where], ["a", null]);
  t.regex(sentence, /bob set this limit\./);
});

test("a partition that no router has seen waits as well, and is not unknown", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [id] = await world.stage("a");
  const it = await explain(world, { partition: "a" });
  t.like(it, { state: "waiting", id, partition: "a", policy: "p", reason: null, gates: [], ticked_by: null });
  t.regex(
    it.sentence,
    /^Nobody admits its jobs: no live worker runs the loop .* Nothing else holds it back\.$/,
  );
  const unknown = await explain(world, { partition: "b" });
  t.is(unknown.state, "unknown");
  t.regex(unknown.sentence, /^Nothing is known of this partition: .* the key is misspelt\.$/);
  await world.pool.query("select dispatch_policy.pause('p', by => 'ana')");
  for (const asked of [id!, { partition: "a" }])
    t.like(await explain(world, asked), { reason: "paused", stop: { what: "policy", by: "ana" } });
});

test("paused, and by whom: the policy, or the partition", async (t) => {
  const world = await engine(t, { gates: [] });
  const [id] = await world.stage("a");
  await world.route();
  await world.pool.query("select dispatch_policy.pause('p', 'a', reason => 'invoice', by => 'bo')");
  await world.route();
  const partition = await agreed(t, world, id!);
  t.like(partition, { reason: "paused", gate: null, next_at: null });
  t.deepEqual(partition.stop, { what: "partition", by: "bo", reason: "invoice", until: null, besides: null });
  t.regex(partition.sentence, /The partition was paused by bo \(invoice\)\./);
  await world.pool.query("select dispatch_policy.pause('p', until => '2100-01-01T00:00Z', by => 'ana')");
  const policy = await explain(world, id!);
  t.is(policy.stop.what, "policy");
  t.is(policy.stop.by, "ana");
});

test("held after a 429, and until when", async (t) => {
  const world = await engine(t, { gates: [] });
  const [id] = await world.stage("a");
  await world.route();
  await world.pool.query(
    "select dispatch_policy.hold('p', 'a', '2100-01-01T00:00:00.5Z', reason => '429', by => 'task')",
  );
  const it = await agreed(t, world, id!);
  t.is(it.reason, "held");
  t.is(new Date(it.next_at).toISOString(), "2100-01-01T00:00:00.500Z");
  t.like(it.stop, { what: "partition", by: "task", reason: "429" });
  t.regex(it.sentence, /The partition is on hold by task \(429\) until 2100-01-01T00:00:00\+00:00\./);
});

test("the breaker, until its cooldown is over", async (t) => {
  const world = await engine(t, {
    gates: [],
    breaker: { failures: 1, withinSeconds: 60, cooldownSeconds: 3600 },
  });
  await world.stage("a");
  t.is(await world.passes(), 1);
  const [job] = await world.inFlight();
  await world.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  await world.release([{ job: job!, ok: false }]);
  await world.route();
  const [id] = await world.stage(["a", "a"]);
  await world.passes();
  const it = await agreed(t, world, id!);
  t.like(it, { reason: "breaker_open", gate: null });
  t.deepEqual(it.mend, {
    words: "Once its cause is mended, to let it go",
    verb: "resume",
    options: { policy: "p", partition: "a" },
  });
});

test("a hold that is over: the others wait for the job that went first", async (t) => {
  const world = await engine(t, { gates: [] });
  const [, id] = await world.stage(["a", "a"]);
  await world.pool.query("select dispatch_policy.hold('p', 'a', \"for\" => '0')");
  t.is(await world.passes(2), 1);
  const it = await agreed(t, world, id!);
  t.like(it, { reason: "probing", gate: null, next_at: null });
  t.like(it.mend, { verb: "resume", options: { policy: "p", partition: "a" } });
});

test("not yet due, quarantine, or its key is not worked out: each says when it goes on, or what is missing", async (t) => {
  const world = await engine(t, { gates: [] });
  const runAt = new Date("2100-01-01T00:00:00Z");
  const [later, refused, unkeyed] = await world.stage(["a", "a", "a"], { runAt });
  await world.route();
  t.like(await explain(world, later!), { reason: "not_due", next_at: "2100-01-01T00:00:00+00:00" });
  await world
    .table("staged_jobs")
    .set({ retry_at: "2100-01-01T00:00Z", error: "no such plan" }, { id: refused });
  const it = await explain(world, refused!);
  t.like(it, { reason: "quarantined", error: "no such plan" });
  t.like(it.mend, { words: "Once its cause is mended, to let it go", verb: "reschedule_jobs" });
  t.deepEqual(it.mend.options, { ids: [refused], run_at: it.as_of });
  t.regex(it.sentence, /no such plan/);
  await world.table("staged_jobs").set({ partition_id: null }, { id: unkeyed });
  const keyless = await explain(world, unkeyed!);
  t.like(keyless, { reason: "waiting_key", policy: "p", partition: null });
  t.deepEqual(keyless.mend, {
    words: "Nothing to do: it goes by itself, and nobody can tell when",
    verb: null,
    options: null,
  });
  await world.table("staged_jobs").set({ error: "no such plan" }, { id: unkeyed });
  const refusing = await explain(world, unkeyed!);
  t.like(refusing.mend, { words: "Once its cause is mended, it goes by itself" });
  t.is(refusing.acts, "developer");
  t.regex(refusing.sentence, /must work out its partition first\. The last try failed: no such plan/);
});

test("a pass left it behind: the budget, or the batch; and how many go before it", async (t) => {
  const budget = await engine(t, { gates: [], budget: 1 });
  const ids = await budget.stage(["a", "a", "a"]);
  t.is(await budget.passes(), 1);
  const it = await explain(budget, ids[2]!);
  t.is(it.reason, "tick_budget");
  t.is(it.place.jobs_before, 1);
  t.regex(it.sentence, /1 job of its partition goes before it/);
  const batch = await engine(t, { gates: [], batchSize: 1 });
  const [, second] = await batch.stage(["a", "a"]);
  t.is(await batch.passes(), 1);
  const left = await explain(batch, second!);
  t.is(left.reason, "batch");
  t.like(left.mend, { verb: "tick", options: { policy: "p" } });
});

test("a slot is held for far longer than runs take: its job is named, and what ends it", async (t) => {
  const world = await engine(t, { gates: [concurrency(1)] });
  const [, id] = await world.stage(["a", "a"]);
  t.is(await world.passes(2), 1);
  const [holder] = await world.inFlight();
  await fetchJob(world, holder!, "worker-1");
  await world.table("policies").set({ crontab_ticked_at: () => "now()" });
  const running = (since: string) =>
    workerTable(world.pool).set({ locked_at: () => `now() - interval '${since}'` }, { id: holder });
  await running("41 minutes");
  const unknown = await explain(world, id!);
  t.like(unknown.gates[0], { runs_usually: null });
  t.false(unknown.gates[0].holders[0].long, "no run has ended yet");
  const { id: policy_id } = await world.table("policies").one();
  const runs = { runs: { 4: 100 }, run_max: 1 };
  await world.table("minutes").add({ ...QUIET_MINUTE, policy_id, minute: "-infinity", ...runs });
  const it = await agreed(t, world, id!);
  t.like(it.gates[0], { runs_usually: 1 });
  t.true(it.gates[0].holders[0].long);
  t.regex(
    it.sentence,
    new RegExp(`Job ${holder} has run for 41 min, and 95 of 100 jobs of this policy run 1 s at most`),
  );
  t.deepEqual(it.mend, {
    ...{ verb: "cancel", options: { ids: [holder] } },
    words: `If job ${holder} hangs, to end it`,
  });
  const itself = await explain(world, holder!);
  t.regex(itself.sentence, /^It has run for 41 min, and 95 of 100 jobs of its policy run 1 s at most\./);
  t.like(itself.mend, { verb: "cancel", options: { ids: [holder] } });
  await running("50 seconds");
  const usual = await explain(world, id!);
  t.false(usual.gates[0].holders[0].long, "a minute is not long");
  t.is(usual.mend.verb, "set_limit");
});

test("an admitted job says whether a live worker has its task", async (t) => {
  const world = await engine(t, { gates: [] });
  const [id] = await world.stage("a");
  t.is(await world.passes(), 1);
  t.is(
    (await explain(world, id!)).sentence,
    "It was admitted, and no live worker has its task: it starts when one does.",
  );
  await world.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 1, '{p}', 'host', 7, '1 hour', '0')",
  );
  t.is((await explain(world, id!)).sentence, "It was admitted, and a worker fetches it next.");
});

test("a partition says when a job of it was admitted last, and how many are a minute", async (t) => {
  const world = await engine(t, { gates: [] });
  await world.stage(["a", "a", "a"]);
  const partition = async () =>
    (await world.pool.query("select last_admitted_at, admits_a_minute from dispatch_policy.partitions"))
      .rows[0];
  await world.route();
  t.deepEqual(await partition(), { last_admitted_at: null, admits_a_minute: 0 });
  t.is(await world.passes(), 3);
  const { half_life: halfLife } = await world.table("policies").one();
  const { last_admitted_at: at, admits_a_minute: rate } = await partition();
  t.true(Math.abs(at.getTime() - Date.now()) < 60_000);
  // 3 jobs within one half-life, at a steady pace
  t.true(rate > 0 && rate <= (3 * Math.LN2 * 60) / halfLife, `${rate}`);
  await world.table("policies").set({ fair_by_work: true });
  t.is((await partition()).admits_a_minute, null, "then it counts seconds");
});

test("enough is ahead of the workers", async (t) => {
  const { world, id } = await waiting(t, [], { ahead: 1 });
  const it = await agreed(t, world, id);
  t.like(it, { reason: "ahead_full", gate: "ahead" });
  t.is(it.mend.verb, null);
  t.like(it.gates[0], { scope: "workers", source: "workers" });
});

test("nobody ticks, and who does", async (t) => {
  const world = await engine(t, { gates: [] });
  const [id] = await world.stage("a");
  await world.route();
  const it = await explain(world, id!);
  t.is(it.ticked_by, null);
  t.regex(it.sentence, /^Nobody admits its jobs: no live worker runs the loop of this policy/);
  await world.pool.query(
    "select dispatch_policy_internal._worker_alive('pool', 1, '{p}', 'host', 7, '1 hour', '0')",
  );
  await world.pool.query(
    "select from dispatch_policy_internal._lease('pool', '{p}', null, '1 minute', true)",
  );
  const led = await explain(world, id!);
  t.deepEqual(led.ticked_by, { pool_id: "pool", host: "host", pid: 7 });
  t.is(
    led.sentence,
    "Nothing holds it back: it goes with one of the next passes. Expected to start in 0-500 ms.",
  );
});

test("a job that failed: its retry, and for good; one that no policy has, and one that nobody knows", async (t) => {
  const world = await engine(t, { gates: [] });
  await world.stage("a");
  t.is(await world.passes(), 1);
  const [job] = await world.inFlight();
  await world.pool.query("select graphile_worker.permanently_fail_jobs($1, 'boom')", [[job]]);
  const failed = await explain(world, job!);
  t.like(failed, { state: "failed", attempts: 25, error: "boom" });
  t.is(failed.sentence, "It has failed for good, after 25 attempts: boom.");
  const { rows } = await world.pool.query("select id from graphile_worker.add_job('plain')");
  t.like(await explain(world, rows[0].id), { state: "plain", reason: null, policy: null });
  t.like(await explain(world, "999999"), { state: "unknown", reason: null });
  t.is((await explain(world, { partition: "nobody" })).state, "unknown");
  await world.pool.query("select graphile_worker.complete_jobs($1)", [[job]]);
  await world.release([job!]);
  t.like(await explain(world, { partition: "a" }), {
    state: "idle",
    sentence: "No job of the partition waits.",
  });
});

test("a job that failed and waits for its retry says so, and a partition of which some failed for good", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a"]);
  t.is(await world.passes(), 2);
  const [again, never] = (await world.inFlight("a")) as [string, string];
  await fetchJob(world, again);
  const admission = await admissionOf(world, again);
  await failJob(world, again);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  await world.release([{ job: again, ok: false, attempt: 1, admission, retry } as never]);
  const it = await explain(world, again);
  t.like(it, { state: "parked", reason: "not_due", attempts: 1, error: "oops" });
  t.regex(it.sentence, /Attempt 1 failed: oops\. It is due at /);

  await world.pool.query("select graphile_worker.permanently_fail_jobs($1, E'boom\\nat line 1')", [[never]]);
  await world.release([never]);
  await world.pool.query("select dispatch_policy.remove(policy => 'p', partition => 'a')");
  const left = await explain(world, { partition: "a" });
  t.like(left, { state: "idle", failed: { jobs: 2, error: "boom" } });
  t.is(left.sentence, "No job of the partition waits. 2 jobs of it have failed for good: boom.");
  t.like(left.mend, { words: "To bring them back", verb: "retry", options: { policy: "p", partition: "a" } });
});

test("a job that failed for good is found by its staged id as well, with its policy and partition", async (t) => {
  const world = await engine(t, { gates: [] });
  const [staged] = await world.stage("a");
  t.is(await world.passes(), 1);
  const [job] = await world.inFlight();
  await world.pool.query("select graphile_worker.permanently_fail_jobs($1, 'boom')", [[job]]);
  await world.release([job!]);
  const its = { state: "failed", job_id: job, policy: "p", partition: "a", error: "boom" };
  t.like(await explain(world, job!), { ...its, id: job });
  t.like(await explain(world, staged!), { ...its, id: staged });
  await world.pool.query("select graphile_worker.reschedule_jobs($1, attempts => 1, max_attempts => 1)", [
    [job],
  ]);
  t.is((await explain(world, staged!)).sentence, "It has failed for good, after 1 attempt: boom.");
  t.is((await explain(world, "1000000000000999")).state, "unknown");
  // a copy of the flag is not the job
  await workerTable(world.pool).set({ created_at: () => "now() + interval '1 hour'" });
  t.is((await explain(world, staged!)).state, "unknown");
});

test("what is asked must be a job or a partition", async (t) => {
  const world = await engine(t, { gates: [] });
  const bad = { code: "DPARG", message: /give an id, or a policy and a partition/ };
  await t.throwsAsync(world.pool.query("select dispatch_policy.explain()"), bad);
  await t.throwsAsync(world.pool.query("select dispatch_policy.explain(policy => 'p')"), bad);
  await t.throwsAsync(world.pool.query("select dispatch_policy.explain(1, 'p', 'a')"), bad);
  await t.throwsAsync(world.pool.query("select dispatch_policy.explain(policy => 'q', partition => 'a')"), {
    code: "DPPOL",
  });
});
