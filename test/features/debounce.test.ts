// Scenario 36: the adds of a job key, put together by `debounce`.
import test from "ava";
import { addPolicyJob, definePolicy, type JobSpec } from "../../src/index.ts";
import { policyOf, type Scenario, scenario, VIAS } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const DEBOUNCE = { wait: "5 seconds", maxWait: "1 minute" } as const;

const add = (it: Scenario, spec: JobSpec = {}, payload: unknown = { key: "a" }) =>
  it.utils.addJob(it.policy, payload as never, { jobKey: "k", ...spec });

const rowOf = async (it: Scenario, key = "k") =>
  (
    await it.rows(
      `select id, payload, run_at, created_at, debounced_until, expires_at from dispatch_policy.staged_jobs
       where job_key = $1`,
      [key],
    )
  )[0];

/** As if so many seconds had gone by since the staged jobs were added. */
const goBy = (it: Scenario, seconds: number) => {
  const earlier = (its: string) => `${its} - interval '${seconds} seconds'`;
  return table(it.pool, "staged_jobs").set({ run_at: earlier, debounced_until: earlier });
};

/** An add makes the job of a key due after so many seconds, and at the latest after so many (null: no longest wait). */
async function isDue(
  it: Scenario,
  [due, latest]: [number, number | null],
  add: () => Promise<unknown>,
  key = "k",
): Promise<void> {
  const clock = async () => (await it.rows("select clock_timestamp() as now"))[0].now.getTime();
  const before = await clock();
  await add();
  const after = (await clock()) + 1;
  const row = await rowOf(it, key);
  const isAfter = (time: Date, seconds: number) =>
    time.getTime() >= before + seconds * 1000 && time.getTime() <= after + seconds * 1000;
  it.t.true(isAfter(row.run_at, due), `${key} is due ${row.run_at.getTime() - before} ms later`);
  if (latest === null) it.t.is(row.debounced_until, null, key);
  else it.t.true(isAfter(row.debounced_until, latest), `${key}: ${row.debounced_until.getTime() - before}`);
}

for (const via of VIAS) {
  test(`scenario 36: each add postpones a job, and none beyond the longest wait after the first (${via})`, async (t) => {
    const it = await scenario(t, { debounce: DEBOUNCE }, { via });
    const before = (await it.rows("select clock_timestamp() as now"))[0].now as Date;
    await add(it);
    const first = await rowOf(it);
    t.is(first.debounced_until.getTime() - first.run_at.getTime(), 55_000);
    t.true(first.run_at.getTime() >= before.getTime() + 5000);
    await goBy(it, 3);
    await add(it, {}, { key: "a", n: 2 });
    const second = await rowOf(it);
    t.is(second.id, first.id);
    t.deepEqual(second.payload, { key: "a", n: 2 });
    t.is(second.debounced_until.getTime(), first.debounced_until.getTime() - 3000, "that of the first add");
    t.true(second.run_at > first.run_at.getTime() - 3000, "later than it was");
    await goBy(it, 54);
    await add(it);
    const last = await rowOf(it);
    t.deepEqual(last.run_at, last.debounced_until, "a minute after the first add");
    t.like(await it.pass(new Date(last.run_at.getTime() - 1)), { admitted: 0, nextEligibleAt: last.run_at });
    await add(it);
    t.deepEqual((await rowOf(it)).run_at, last.run_at, "nothing postpones it any more");
    t.like(await it.pass(new Date(last.run_at.getTime() + 1)), { admitted: 1 });
  });
}

test("a job whose longest wait is over keeps its time and its place, and is due", async (t) => {
  const it = await scenario(t, { debounce: DEBOUNCE });
  await add(it);
  await goBy(it, 120);
  await add(it);
  const { run_at: due, debounced_until: latest } = await rowOf(it);
  t.deepEqual(due, latest);
  t.deepEqual(
    (await table(it.pool, "staged_jobs").all()).map(({ due: isDue }) => isDue),
    [true],
  );
  t.like(await it.tickNow(), { admitted: 1 });
});

test("scenario 36: the payloads of debounced adds merge if they are arrays", async (t) => {
  const it = await scenario(
    t,
    definePolicy("p", { partitionBy: (_c) => "a", context: () => ({}), debounce: DEBOUNCE }),
  );
  for (const n of [1, 2, 3]) await add(it, {}, [n]);
  t.deepEqual((await rowOf(it)).payload, [1, 2, 3]);
  t.is(await it.staged(), 1);
});

test("scenario 36: a job that was admitted begins anew", async (t) => {
  const it = await scenario(t, { debounce: DEBOUNCE });
  await add(it);
  t.like(await it.tick(), { admitted: 1 });
  await add(it);
  const { run_at: due, debounced_until: latest } = await rowOf(it);
  t.is(latest.getTime() - due.getTime(), 55_000);
});

test("a job's own debounce takes precedence, and so does whatever else says when it is due", async (t) => {
  const it = await scenario(t, { debounce: DEBOUNCE });
  const own = { debounce: { wait: "10 seconds", maxWait: "2 minutes" } } as const;
  await isDue(it, [10, 120], () => add(it, { jobKey: "own", ...own }), "own");
  await isDue(it, [30, null], () => add(it, { jobKey: "wait", wait: "30 seconds" }), "wait");
  const later = new Date(Date.now() + 3_600_000);
  await add(it, { jobKey: "at", runAt: later });
  t.like(await rowOf(it, "at"), { run_at: later, debounced_until: null });
  for (const jobKeyMode of ["preserve_run_at", "unsafe_dedupe"] as const) {
    await add(it, { jobKey: jobKeyMode, jobKeyMode });
    t.like(await rowOf(it, jobKeyMode), { debounced_until: null });
  }
  await it.utils.addJobs([{ identifier: "p", payload: { key: "a" }, jobKey: "many" }] as never, true);
  t.like(await rowOf(it, "many"), { debounced_until: null });
  await it.stage("1@keyless");
  t.like(await it.tickNow(), { admitted: 4 }, "without a key or a time");
});

test("a plain add between two debounced ones has its own time, and does not lengthen the longest wait", async (t) => {
  const it = await scenario(t, {});
  await add(it, { debounce: DEBOUNCE });
  await goBy(it, 57);
  const { debounced_until: latest } = await rowOf(it);
  const before = Date.now();
  await add(it, { wait: "30 seconds" });
  t.true((await rowOf(it)).run_at.getTime() > before + 25_000, "beyond the longest wait");
  await add(it, { debounce: DEBOUNCE });
  t.deepEqual((await rowOf(it)).run_at, latest);
});

test("the time until a debounced job expires counts from when its newest add would be due", async (t) => {
  const it = await scenario(t, { debounce: DEBOUNCE, expiresAfter: "1 hour" });
  await add(it);
  const { run_at: due, expires_at: expires } = await rowOf(it);
  t.is(Math.round((expires - due) / 1000), 3600);
});

for (const [how, own] of [
  ["SQL works the key out", definePolicy("p", { partitionBy: "key", debounce: DEBOUNCE })],
  ["JavaScript works it out", policyOf("p", { debounce: DEBOUNCE })],
] as const) {
  test(`jobs from SQL are debounced: ${how}`, async (t) => {
    const it = await scenario(t, own);
    const sql = (more: string) =>
      it.rows(`select dispatch_policy.add_job('p', '{"key": "a"}', job_key => 'k'${more})`);
    await isDue(it, [5, 60], () => sql(""));
    const until = "debounce_wait => '7 seconds', debounce_max_wait => '20 seconds'";
    await isDue(it, [7, 20], () => sql(`, ${until}`));
    await goBy(it, 19);
    await sql(`, ${until}`);
    const { run_at: due, debounced_until: latest } = await rowOf(it);
    t.deepEqual(due, latest);
    await sql(", run_at => now() + interval '1 hour'");
    const jobs = (keys: string[]) =>
      keys.map((key) => `row('p', '{"key": "a"}', null, null, null, '${key}', null, null)`).join();
    const specs = `array[${jobs(["x", "y"])}]::graphile_worker.job_spec[]`;
    await isDue(it, [7, 20], () => it.rows(`select dispatch_policy.add_jobs(${specs}, ${until})`), "x");
    t.like(await it.pass(new Date(Date.now() + 10_000)), { admitted: 2 });
  });
}

test("a process without the policy debounces as the database says, or as the job does", async (t) => {
  const it = await scenario(t, { debounce: DEBOUNCE });
  const other = await it.makeUtils([]);
  const by = (spec: JobSpec) => () => other.addJob("p", { key: "a" } as never, spec);
  await isDue(it, [5, 60], by({ jobKey: "k" }));
  const own = { debounce: { wait: "10 seconds", maxWait: "2 minutes" } } as const;
  await isDue(it, [10, 120], by({ jobKey: "own", ...own }), "own");
  await t.throwsAsync(other.addJob("plain", {} as never, { jobKey: "k", ...own }), {
    code: "invalid_argument",
    message: /a job of plain: it has debounce, expected none: its task has no policy.*Declare a policy/,
  });
});

test("within a transaction it counts from the add, and a policy that is off leaves it to Graphile Worker", async (t) => {
  const policy = policyOf("p", { debounce: DEBOUNCE });
  const it = await scenario(t, policy);
  const app = await it.transaction();
  await app.query("select pg_sleep(0.2)");
  const { now } = (await app.query("select clock_timestamp() as now")).rows[0];
  await addPolicyJob(app, policy as never, { key: "a" } as never, { jobKey: "k" });
  await app.query("commit");
  t.true((await rowOf(it)).run_at.getTime() >= now.getTime() + 5000);
  await it.utils.disable({ policy: "p" });
  const job = await add(it);
  t.false(job.staged);
  t.true(job.run_at.getTime() >= Date.now() + 1000);
  t.is(await it.staged(), 0);
});

test("a debounced job that a long transaction adds does not expire before it is due", async (t) => {
  const it = await scenario(t, { debounce: { wait: "10 ms", maxWait: "1 minute" }, expiresAfter: "50 ms" });
  const producer = await it.transaction();
  await producer.query("select pg_sleep(0.2)");
  await addPolicyJob(producer, it.own, { key: "a" } as never, { jobKey: "k" });
  await producer.query("commit");
  const { run_at, expires_at } = await rowOf(it);
  t.is(expires_at.getTime() - run_at.getTime(), 50);
});

const REFUSED: [JobSpec, RegExp][] = [
  [{ jobKey: undefined, debounce: DEBOUNCE }, /jobKey is missing: debounce .* Give a jobKey, or no debounce/],
  [{ debounce: DEBOUNCE, wait: "1 minute" }, /debounce says when it is due, leave wait out; got "1 minute"/],
  [{ debounce: DEBOUNCE, runAt: new Date() }, /debounce says when it is due, leave runAt out; got a Date/],
  [{ debounce: DEBOUNCE, jobKeyMode: "unsafe_dedupe" }, /needs the mode "replace", got "unsafe_dedupe"/],
  [
    { debounce: { wait: "2 minutes", maxWait: "1 minute" } },
    /maxWait must not be shorter than wait \("2 minutes"\), got "1 minute": raise it, or lower wait/,
  ],
  [{ debounce: { wait: "2 minutes" } as never }, /debounce: maxWait is missing: it must be a duration/],
  [{ debounce: "5 seconds" as never }, /debounce must be \{ wait, maxWait \}, got "5 seconds"/],
];

test("what contradicts debounce is refused, and says the way out", async (t) => {
  const it = await scenario(t);
  for (const [spec, message] of REFUSED)
    await t.throwsAsync(add(it, spec), { code: "invalid_argument", message });
  const sql = (rest: string) => it.rows(`select dispatch_policy.add_job('p', '{"key": "a"}', ${rest})`);
  const both = "debounce_wait => '5 s', debounce_max_wait => '1 min'";
  await t.throwsAsync(sql(both), { code: "DPARG", message: /job_key is null, expected one.*Give a job_key/ });
  await t.throwsAsync(sql(`job_key => 'k', run_at => now(), ${both}`), {
    message: /run_at is .*, expected none/,
  });
  await t.throwsAsync(sql(`job_key => 'k', job_key_mode => 'unsafe_dedupe', ${both}`), {
    message: /job_key_mode is unsafe_dedupe, expected replace/,
  });
  await t.throwsAsync(sql("job_key => 'k', debounce_wait => '5 s'"), {
    message: /debounce_max_wait is missing/,
  });
  await t.throwsAsync(sql("job_key => 'k', debounce_wait => '0 s', debounce_max_wait => '5 s'"), {
    message: /debounce_wait is 00:00:00, expected an interval longer than 0/,
  });
  await t.throwsAsync(sql("job_key => 'k', debounce_wait => '5 s', debounce_max_wait => '4 s'"), {
    message: /debounce_max_wait is 00:00:04, expected an interval of at least debounce_wait \(00:00:05\)/,
  });
  await t.throwsAsync(sql("job_key => 'k', debounce_wait => '5 s', debounce_max_wait => '300000 years'"), {
    code: "DPARG",
    message: /debounce_max_wait is 300000 years, expected at most a million days/,
  });
  t.is(await it.staged(), 0);
});
