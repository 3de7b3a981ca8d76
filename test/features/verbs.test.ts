// What operators' verbs do beside what other verbs did.
import test from "ava";
import {
  ArgumentError,
  concurrency,
  definePolicy,
  RetryAfter,
  runTickLoop,
  throttle,
  UnknownPolicyError,
} from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";
import { silent } from "../helpers/silent.ts";
import { table } from "../helpers/table.ts";

test("each verb takes the policy itself in the place of its name", async (t) => {
  const policy = policyOf("p", { gates: [throttle<Ctx>({ scope: "policy", rate: 100, per: "1 hour" })] });
  const other = policyOf("q", { tasks: ["task_of_q"] });
  const it = await scenario(t, policy, { others: [other] });
  await it.stage("3@a");
  await it.tickNow();
  await it.stage("1@a");
  const { utils } = it;
  const gate = "throttle";
  t.like(await utils.pause({ policy }), { changed: 1 });
  t.is((await utils.stops({ policy })).length, 1);
  t.like(await utils.resume({ policy }), { changed: 1 });
  t.like(await utils.admit({ policy, count: 1, dryRun: true }), { matched: 1 });
  t.like(await utils.move({ policy, partition: "a", toPartition: "b", toPolicy: policy, dryRun: true }), {
    matched: 1,
  });
  for await (const job of utils.export({ policy })) t.is(job.policy, "p");
  t.like(await utils.remove({ policy, dryRun: true }), { matched: 1 });
  t.like(await utils.cancel({ policy, dryRun: true }), { matched: 4 });
  t.like(await utils.retry({ policy, dryRun: true }), { matched: 0 });
  t.like(await utils.setLimit({ policy, gate, set: { rate: 50 } }), { changed: 1 });
  t.is((await utils.limits({ policy })).length, 1);
  t.like(await utils.clearLimit({ policy, gate }), { changed: 1 });
  await t.throwsAsync(utils.diff({ policy, gate, set: { rate: 1 } }), { message: /"p" records no load/ });
  t.like(await utils.refreshContext({ policy, context: { max: 2 } }), { matched: 1 });
  t.true((await utils.take({ policy, gate })).taken);
  t.true((await utils.sync({ policy, gate, remaining: 1 })).lowered);
  t.is((await utils.explain({ policy, partition: "a" })).state, "waiting");
  t.deepEqual(await utils.history({ policy }), []);
  t.is((await utils.status({ policy })).policies.length, 1);
  t.is((await utils.partitions({ policy })).length, 1);
  t.is((await utils.tick({ policy })).admitted, 1);
  t.like(await utils.hold({ policy, partition: "a", forMs: 1 }), { changed: 1 });
  t.like(await utils.disable({ policy }), { changed: 1 });
  t.like(await utils.unstage({ policy, dryRun: true }), { matched: 0 });
  t.like(await utils.enable({ policy }), { changed: 1 });
  t.like(await utils.removePolicy({ policy: other, into: policy, dryRun: true }), { matched: 0 });
});

test("a later, shorter hold does not shorten the one in force", async (t) => {
  const it = await scenario(t);
  await it.stage("2@a");
  await it.tickNow();
  const until = new Date(Date.now() + 60_000);
  await it.utils.hold({ policy: "p", partition: "a", until });
  await it.utils.hold({ policy: "p", partition: "a", forMs: 1000 });
  t.deepEqual((await it.partition("a")).held_until, until);
});

test("admit finds due jobs beside partitions whose jobs were removed", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.stage("2@a 2@b 2@c 2@d 2@e");
  await it.tickNow();
  await it.utils.remove({ policy: "p" });
  await it.stage("1@z");
  t.like(await it.utils.admit({ policy: "p", count: 1 }), { matched: 1, changed: 1 });
});

for (const [how, removal] of Object.entries({
  remove_job: "remove_job('k')",
  complete_jobs: "complete_jobs(array[$1::bigint])",
  permanently_fail_jobs: "permanently_fail_jobs(array[$1::bigint])",
})) {
  test(`a job staged from SQL that ${how} removed before its key was worked out does not delay other jobs`, async (t) => {
    const it = await scenario(t, {});
    const add = `select (dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')).id`;
    const [{ id }] = await it.rows(add);
    await it.rows(`select dispatch_policy.${removal}`, removal.includes("$1") ? [id] : []);
    await it.rows(`select dispatch_policy.add_job('p', '{"key":"c"}')`);
    await it.tickNow();
    await it.tickNow();
    t.is((await it.rows("select from dispatch_policy.in_flight_jobs")).length, 1);
    t.is(await table(it.pool, "keyless_jobs").count(), 0);
  });
}

test("a job staged from SQL and replaced from JavaScript does not delay other jobs", async (t) => {
  const it = await scenario(t, {});
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')`);
  await it.utils.addJob("p", { key: "b" } as never, { jobKey: "k" });
  t.is((await it.tickNow()).admitted, 1);
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"c"}')`);
  await it.tickNow();
  await it.tickNow();
  t.is((await it.rows("select from dispatch_policy.in_flight_jobs")).length, 2);
});

test("a job whose key could not be worked out is tried again at once when it is replaced", async (t) => {
  const it = await scenario(t, {});
  await it.rows(`select dispatch_policy.add_job('p', '{}', job_key => 'k')`);
  await it.tickNow();
  t.is(await table(it.pool, "keyless_jobs").count({ retry_at: (its) => `${its} > now()` }), 1);
  await it.rows(`select dispatch_policy.add_job('p', '{"key":"a"}', job_key => 'k')`);
  t.is((await it.tickNow()).admitted, 1);
});

test("a cap past PostgreSQL's integers is refused, and nothing is staged", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: () => Number.MAX_SAFE_INTEGER })] });
  await t.throwsAsync(it.stage("1@a"), {
    message: /max .* a whole number, 0 to 2147483647, got 9007199254740991/,
  });
  t.is((await it.rows("select from dispatch_policy.staged_jobs")).length, 0);
});

test("a policy accepts the greatest batch and the greatest budget", async (t) => {
  const it = await scenario(t, {
    gates: [concurrency<Ctx>({ max: 2 ** 31 - 1 })],
    admissionBatchSize: 2 ** 30,
    tickAdmissionBudget: 2 ** 30,
  });
  await it.stage("3@a");
  t.is((await it.tickNow()).admitted, 3);
  await it.stage("3@a");
  t.is((await it.rows("select changed from dispatch_policy.admit('p', 2147483647)"))[0].changed, 3);
});

test("a hold keeps the author and the reason of a pause", async (t) => {
  const it = await scenario(t);
  await it.stage("1@a");
  await it.tickNow();
  const target = { policy: "p", partition: "a" };
  await it.utils.pause({ ...target, reason: "incident 12", by: "ana" });
  await it.utils.hold({ ...target, forMs: 60_000, by: "job 7" });
  t.like(await it.utils.explain(target), { reason: "paused", stoppedBy: "ana", stopReason: "incident 12" });
});

test("a job staged for a held partition is held, not early", async (t) => {
  const it = await scenario(t);
  await it.utils.hold({ policy: "p", partition: "a", forMs: 60_000 });
  const [job] = await it.stage("1@a");
  await it.tickNow();
  t.is((await it.utils.explain({ id: job?.id ?? "" })).reason, "held");
});

test("jobs of many partitions from SQL are staged without gigabytes of temporary files", async (t) => {
  const it = await scenario(t, definePolicy("p", { partitionBy: "key" }));
  const client = await it.transaction();
  await client.query("set local temp_file_limit = '32MB'");
  await client.query(
    `select count(*) from dispatch_policy.add_jobs(array(
       select row('p', json_build_object('key', 'key ' || n), null, null, null, null, null, null)::graphile_worker.job_spec
       from generate_series(1, 2000) n))`,
  );
  await client.query("commit");
  t.is(await it.staged(), 2000);
});

test("a dry run of admit counts what would go, and nothing else", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.stage("5@a 4@b");
  await it.stage("2@a", {}, { runAt: new Date(Date.now() + 3_600_000) });
  const dry = { policy: "p", dryRun: true };
  t.deepEqual(await it.utils.admit({ ...dry, drain: true }), { matched: 9, changed: 0, notDue: 2 });
  t.deepEqual(await it.utils.admit({ ...dry, count: 3 }), { matched: 3, changed: 0, notDue: 2 });
  t.deepEqual(await it.utils.admit({ ...dry, count: 7, partition: "b" }), {
    ...{ matched: 4, changed: 0, notDue: 0 },
  });
  t.is((await it.inFlight()).length, 0);
  t.is((await it.rows("select from dispatch_policy.audit where verb = 'admit'")).length, 0);
  t.deepEqual(await it.utils.admit({ policy: "p", drain: true }), { matched: 9, changed: 9, notDue: 2 });
});

for (const [name, release] of Object.entries({
  "utils.releaseSlots": (it: Scenario, jobId: string) => it.utils.releaseSlots({ jobId, by: "ana" }),
  "release_slots in SQL": async (it: Scenario, jobId: string) =>
    (await it.rows("select * from dispatch_policy.release_slots($1, by => 'ana')", [jobId]))[0],
})) {
  test(`${name} frees a job's slots, and closes nothing`, async (t) => {
    const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
    const [job] = await it.stage("1@a");
    await it.tickNow();
    t.deepEqual(await release(it, job?.id ?? ""), { matched: 1, changed: 1 });
    t.is((await it.inFlight()).length, 0);
    const [{ verb, by }] = await it.rows("select verb, by from dispatch_policy.audit");
    t.deepEqual({ verb, by }, { verb: "release_slots", by: "ana" });
  });
}

test("release_slots without a job id is refused", async (t) => {
  const it = await scenario(t);
  await t.throwsAsync(it.rows("select * from dispatch_policy.release_slots(null)"), {
    code: "DPARG",
    message: /release_slots: job_id is null/,
  });
});

test("an undefined time counts as not given", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.stage("1@a");
  await it.utils.pause({ policy: "p", until: undefined });
  t.is((await it.utils.tick({ now: undefined })).admitted, 0);
  await it.utils.resume({ policy: "p" });
  await it.utils.hold({ policy: "p", partition: "a", forMs: 60_000, until: undefined });
  t.is((await it.utils.explain({ policy: "p", partition: "a" })).reason, "held");
  const limit = { policy: "p", gate: "concurrency", set: { max: 2 } };
  await it.utils.setLimit({ ...limit, from: undefined, until: undefined });
  t.like((await it.utils.limits())[0], { from: null, until: null });
});

test("a hold in a task with wrong options names the wrong option", async (t) => {
  const it = await scenario(t);
  const refused: unknown[] = [];
  await it.worker({
    tasks: {
      p: async (_payload, { dispatchPolicy }) => {
        for (const options of [{}, { forMs: -1 }, { until: new Date(Number.NaN) }, { untill: new Date() }])
          refused.push(await dispatchPolicy?.hold(options as never).catch((error) => error));
      },
    },
    loop: false,
  });
  await it.stage("1@k");
  await it.tickNow();
  await until("it ran", () => refused.length === 4);
  for (const [i, message] of [
    /until undefined, forMs undefined/,
    /forMs/,
    /valid Date/,
    /"until"/,
  ].entries()) {
    t.true(refused[i] instanceof ArgumentError);
    t.regex((refused[i] as Error).message, message);
  }
  t.is((await it.partition("k")).held_until, null);
});

test("runTickLoop refuses to start without a signal, or for an unknown policy", async (t) => {
  const it = await scenario(t);
  const options = { preset: it.preset, pgPool: it.connections(2), logger: silent };
  await t.throwsAsync(runTickLoop({ ...options, signal: undefined as never }), {
    instanceOf: ArgumentError,
    message: /runTickLoop: signal is missing: it must be an AbortSignal/,
  });
  const { signal } = new AbortController();
  await t.throwsAsync(runTickLoop({ ...options, policy: "q", signal }), { instanceOf: UnknownPolicyError });
});

test("a RetryAfter needs a time", (t) => {
  t.throws(() => new RetryAfter(new Date(Number.NaN)), { instanceOf: ArgumentError, message: /valid Date/ });
  t.throws(() => new RetryAfter(30 as never), {
    instanceOf: ArgumentError,
    message: /^RetryAfter: the wait must be a Date, or a duration such as "30 seconds" .*, got 30$/,
  });
});

test("unsafe_dedupe tells the partition of the job that is there", async (t) => {
  const it = await scenario(t);
  const spec = { jobKey: "one", jobKeyMode: "unsafe_dedupe" } as const;
  const first = await it.utils.addJob("p", { key: "a" }, spec);
  await it.tick(-60); // routed, not due yet
  const second = await it.utils.addJob("p", { key: "b" }, spec);
  t.like(second, { id: first.id, partition: "a", staged: true });
  await it.tickNow();
  t.like(await it.utils.addJob("p", { key: "b" }, spec), { id: first.id, partition: "a" });
});

test("a burst for a sliding window is refused, whether it was used or not", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 1, per: "1 minute", window: "sliding" })] });
  const limit = { policy: "p", gate: "throttle", set: { burst: 5 } };
  await t.throwsAsync(it.utils.setLimit(limit), { instanceOf: ArgumentError, message: /'burst'.*per, rate/ });
});

test("a window of more than 1e9 seconds is refused", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 1, per: "1 minute", window: "sliding" })] });
  await t.throwsAsync(it.rows(`select dispatch_policy.set_limit('p', 'throttle', '{"per": 1e12}')`), {
    message: /per is 1000000000000, expected seconds, more than 0 \(1e-12 to 1e9\)/,
  });
});

test("admit counts no more than 10,000 jobs that are not due", async (t) => {
  const it = await scenario(t);
  const added = await it.stage("1@a", {}, { runAt: new Date(Date.now() + 3_600_000) });
  await it.tickNow();
  const staged = table(it.pool, "staged_jobs");
  const { partition_id, task_identifier, run_at } = await staged.one({ id: added[0]?.id });
  await staged.add({ partition_id, task_identifier, run_at, due: false }, 10_500);
  t.deepEqual(await it.utils.admit({ policy: "p", count: 1 }), { matched: 0, changed: 0, notDue: 10_000 });
});
