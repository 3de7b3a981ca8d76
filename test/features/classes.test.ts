// Classes: jobs of a lower class go first, shares decide within a class, and a class with a share never starves.
import test from "ava";
import { concurrency, definePolicy, PayloadError, shared, throttle } from "../../src/index.ts";
import { type Ctx, policyOf, type Scenario, scenario } from "../helpers/scenario.ts";

/** Of jobs that are staged with a `max` of 1, 2, 3: class 0, 1, 2. */
const byMax = { class: (ctx: Ctx) => ctx.max - 1 } as const;
const one = concurrency({ max: 1, scope: "policy" });
const WAYS = ["a pass", "a release"] as const;

/** Ends the job in flight, and tells which partition's job goes next. */
async function next(it: Scenario, way: (typeof WAYS)[number]): Promise<string | undefined> {
  const jobs = (await it.inFlight()).map(({ job_id }) => job_id);
  if (way === "a pass") {
    await it.finish(jobs.length);
    await it.tick();
    if ((await it.inFlight()).length === 0) await it.tick(); // it has called one whose jobs are gone
  } else {
    await it.rows(
      `insert into dispatch_policy_internal.leases (policy, shard, holder, expires_at)
       values ('p', 'default', 'loop', clock_timestamp() + interval '29 seconds')
       on conflict (policy, shard) do update set expires_at = excluded.expires_at`,
    );
    await it.rows("select graphile_worker.complete_jobs($1)", [jobs]);
    await it.rows("select left_ids from dispatch_policy_internal._release($1, $2, true)", [
      JSON.stringify(jobs.map((job) => ({ job, ok: true }))),
      it.at(0),
    ]);
  }
  return (await it.inFlight())[0]?.partition;
}

async function order(it: Scenario, way: (typeof WAYS)[number], count: number): Promise<string> {
  const went: string[] = [];
  for (let n = 0; n < count; n++) went.push((await next(it, way)) ?? "-");
  return went.join("");
}

/** The classes of the jobs in flight. */
async function classesInFlight(it: Scenario): Promise<number[]> {
  const rows = await it.rows(
    `select coalesce((j.payload ->> 'max')::int, 1) - 1 as class from dispatch_policy.in_flight_jobs f
     join graphile_worker._private_jobs j on j.id = f.job_id order by 1`,
  );
  return rows.map((row) => row.class);
}

for (const way of WAYS) {
  test(`a later class goes when no lower one waits, by ${way}`, async (t) => {
    const it = await scenario(t, { ...byMax, gates: [one] });
    await it.stage("1@x");
    await it.tick();
    await it.stage("2@q", { max: 3 });
    await it.stage("2@n 2@m", { max: 2 });
    await it.stage("4@a 2@b");
    await it.tick();
    const went = await order(it, way, 13);
    t.is(went.replaceAll(/[ab]/g, "0").replaceAll(/[mn]/g, "1"), "0000001111qq-");
    t.is([...went.slice(0, 4)].sort().join(""), "aabb", "fair shares within a class");
    t.is([...went.slice(6, 10)].sort().join(""), "mmnn");
  });

  test(`a class with a share of a fifth gets every fifth place, by ${way}`, async (t) => {
    const it = await scenario(t, { ...byMax, gates: [one], classShare: { 1: 0.2 } });
    await it.stage("1@x");
    await it.tick();
    await it.stage("9@n", { max: 2 });
    await it.stage("9@a");
    await it.tick();
    t.is(await order(it, way, 18), "aaanaaaanaannnnnnn");
  });

  test(`two classes with shares, by ${way}`, async (t) => {
    const it = await scenario(t, { ...byMax, gates: [one], classShare: { 1: 0.25, 2: 0.25 } });
    await it.stage("1@x");
    await it.tick();
    await it.stage("5@q", { max: 3 });
    await it.stage("5@n", { max: 2 });
    await it.stage("12@a");
    await it.tick();
    t.is(await order(it, way, 12), "naqanaqanaqa");
  });
}

test("a pass that admits many keeps the share, of one deep partition as of several", async (t) => {
  for (const words of ["40@n", "4@n 4@m 4@o", "1@n 1@m 1@o 1@p 1@r 1@s"]) {
    const it = await scenario(t, {
      ...byMax,
      gates: [concurrency({ max: 50, scope: "policy" })],
      classShare: { 1: 0.1 },
    });
    await it.stage("50@x");
    await it.tick();
    await it.stage(words, { max: 2 });
    await it.stage("100@a");
    await it.tick();
    await it.finish(50);
    await it.tick();
    const { a, ...others } = await it.inFlightBy();
    t.is(a, 45, words);
    t.is(
      Object.values(others).reduce((sum, jobs) => sum + jobs, 0),
      5,
      words,
    );
  }
});

test("a budget keeps the share", async (t) => {
  const it = await scenario(t, { ...byMax, tickAdmissionBudget: 20, classShare: { 1: 0.1 } });
  await it.stage("40@n", { max: 2 });
  await it.stage("40@a 40@b");
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { a: 9, b: 9, n: 2 });
});

test("a throttle keeps the share, whatever its jobs cost", async (t) => {
  for (const cost of [1, 5, 0.5]) {
    const it = await scenario(t, {
      ...byMax,
      gates: [throttle({ rate: 20 * cost, per: "1 second", scope: "policy" })],
      classShare: { 1: 0.2 },
    });
    await it.stage("20@x", { cost });
    await it.tick();
    await it.stage("40@n", { max: 2, cost });
    await it.stage("80@a", { cost });
    await it.tick();
    for (let n = 1; n <= 4; n++) await it.tick(n / 2);
    const { a, n } = await it.inFlightBy();
    t.deepEqual([a, n], [32, 8], `cost ${cost}`);
  }
});

test("a partition's jobs of two classes share its gate, its count and its pause", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [concurrency({ max: 2 })] });
  await it.stage("2@a", { max: 2 });
  await it.stage("3@a");
  await it.tick();
  t.deepEqual(await classesInFlight(it), [0, 0], "class 0 first, and two at once");
  t.like(await it.partition("a"), { staged: 3, class: 0, weight: 1, reason: "concurrency_full" });
  t.is((await it.rows("select from dispatch_policy.partitions")).length, 1);
  await it.utils.pause({ policy: "p", partition: "a" });
  await it.finish(2);
  await it.tick();
  t.deepEqual(await it.inFlightBy(), {});
  await it.utils.resume({ policy: "p", partition: "a" });
  await it.tick();
  t.deepEqual(await it.inFlightBy(), { a: 2 });
});

test("explain says the class, and how many of lower ones go before", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  const [late] = await it.stage("1@n", { max: 2 });
  await it.stage("1@a 1@b");
  await it.tick();
  const { place, sentence } = await it.utils.explain({ id: String(late!.id) });
  t.like(place, { class: 1, partitionsBefore: 2, lowerClassesBefore: 2 });
  t.regex(sentence, /It is of class 1, and 2 partitions with jobs of lower classes go before it\./);
});

test("at a tenant's own cap its later jobs have their places as well", async (t) => {
  for (const way of WAYS) {
    const it = await scenario(t, { ...byMax, gates: [concurrency({ max: 1 })], classShare: { 1: 0.25 } });
    await it.stage("1@t");
    await it.tick();
    await it.stage("9@t", { max: 2 });
    await it.stage("9@t");
    await it.tick();
    const went: number[] = [];
    for (let n = 0; n < 8; n++) {
      await next(it, way);
      went.push(...(await classesInFlight(it)));
    }
    t.is(went.join(""), "00100010", way);
  }
});

test("SQL refuses to work out a context anew if classes depend on it", async (t) => {
  const it = await scenario(t, byMax);
  const error = await t.throwsAsync(() =>
    it.rows("select dispatch_policy.refresh_context('p', '{}', partition => 'a')"),
  );
  t.regex(
    error!.message,
    /functions of the context, which SQL cannot call: class\. Call utils\.refreshContext/,
  );
});

test("a job that SQL adds has its class", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  for (const max of [2, 1])
    await it.rows("select dispatch_policy.add_job('p', $1)", [JSON.stringify({ key: `k${max}`, max })]);
  await it.tick();
  t.is(await order(it, "a pass", 2), "k1k2");
});

test("by work, what a job of one class took does not count in another", async (t) => {
  const it = await scenario(t, { ...byMax, fairness: { by: "work", halfLife: "1 day" } });
  await it.stage("1@a", { max: 2 });
  await it.stage("1@a");
  await it.tick();
  const ran = await it.rows(
    "select f.job_id, (j.payload ->> 'max')::int as max from dispatch_policy.in_flight_jobs f join graphile_worker._private_jobs j on j.id = f.job_id",
  );
  await it.rows("select left_ids from dispatch_policy_internal._release($1, $2)", [
    JSON.stringify(
      ran.map(({ job_id, max }) => ({
        job: job_id,
        ok: true,
        task: "p",
        durationMs: max === 2 ? 100_000 : 3000,
      })),
    ),
    it.at(0),
  ]);
  await it.tick();
  const lanes = await it.rows(
    `select dispatch_policy_internal._class_of(1 / weight) as class, round(decayed_admits::numeric, 2)::float8 as decayed,
       mean_work from dispatch_policy_internal.partitions order by 1`,
  );
  t.deepEqual(lanes, [
    { class: 0, decayed: 3, mean_work: 3 },
    { class: 1, decayed: 100, mean_work: 100 },
  ]);
});

test("a later class without a share does not go by wait", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  await it.stage("3@n", { max: 2 });
  await it.stage("40@a");
  for (let n = 0; n < 25; n++) {
    await it.finish(1);
    await it.tick(n * 11);
    t.deepEqual(await it.inFlightBy(), { a: 1 });
  }
});

test("in class 0 every tenth of the other places goes by wait", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one], classShare: { 1: 0.1 } });
  await it.stage("1@x");
  await it.tick();
  await it.stage("9@n", { max: 2 });
  await it.stage("2@light", { weight: 1e-6 });
  await it.stage("40@a");
  await it.tick();
  const went: string[] = [];
  for (let n = 0; n < 24; n++) {
    await it.finish(1);
    await it.tick(11 + n);
    went.push(...Object.keys(await it.inFlightBy()));
  }
  t.is(went.filter((key) => key === "n").length, 2);
  t.is(went.filter((key) => key === "light").length, 2);
});

test("a definition that changes classes changes them for jobs that wait", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  await it.stage("2@n", { max: 2 });
  await it.stage("2@a");
  await it.tick();
  const turned = policyOf("p", { class: (ctx: Ctx) => 2 - ctx.max, gates: [one], version: 1 });
  const utils = await it.makeUtils([turned]);
  await utils.tick({ policy: "p" });
  const went: string[] = [];
  for (let n = 0; n < 4; n++) {
    await it.finish(1);
    await utils.tick({ policy: "p", now: it.at(1) });
    went.push(...Object.keys(await it.inFlightBy()));
  }
  t.deepEqual(went, ["n", "n", "a", "a"]);
});

test("a job whose key was added in another class moves there", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  await it.stage("1@n", { max: 2 }, { jobKey: "k" });
  await it.stage("2@a", { max: 2 });
  await it.tick();
  await it.stage("1@n", {}, { jobKey: "k" });
  t.is(await it.staged(), 3);
  t.is(await order(it, "a pass", 4), "naa-");
});

test("jobs keep their class when they move", async (t) => {
  const it = await scenario(t, { ...byMax, gates: [one] });
  await it.stage("1@x");
  await it.tick();
  await it.stage("1@n", { max: 2 });
  await it.stage("1@m");
  await it.stage("2@a");
  await it.tick();
  await it.utils.move({ policy: "p", partition: "n", toPartition: "m" });
  await it.tick();
  const went = await order(it, "a pass", 5);
  t.is([...went.slice(0, 3)].sort().join(""), "aam");
  t.is(went.slice(3), "m-");
});

test("a job that moves lies with those of its class and cost", async (t) => {
  const memory = concurrency<Ctx>({ name: "memory", scope: "policy", max: 16, cost: (ctx) => ctx.cost });
  const it = await scenario(t, { ...byMax, gates: [one, memory] });
  await it.stage("1@x");
  await it.tick();
  await it.stage("1@n 1@m", { max: 2, cost: 3 });
  await it.tick();
  await it.utils.move({ policy: "p", partition: "n", toPartition: "m" });
  await it.tick();
  const [lane, ...others] = await it.rows(
    "select staged from dispatch_policy_internal.partitions where key = 'm'",
  );
  t.deepEqual([lane, others], [{ staged: 2 }, []]);
});

test("on a shared limit classes count over policies", async (t) => {
  const api = shared("api", one);
  const late = policyOf("late", { class: () => 1, gates: [api] });
  const it = await scenario(t, { gates: [api] }, { others: [late] });
  await it.stage("1@x");
  await it.tick();
  await it.utils.addJobs([{ identifier: "late", payload: { key: "n" } }] as never);
  await it.utils.tick({ policy: "late", now: it.at(0) });
  await it.stage("3@a");
  await it.tick();
  const went: string[] = [];
  for (let n = 0; n < 4; n++) {
    const [job] = await it.rows("select job_id from dispatch_policy.in_flight_jobs");
    await it.utils.completeJobs([job.job_id]);
    await it.utils.sweep();
    await it.utils.tick({ policy: "late", now: it.at(0) });
    await it.tick();
    await it.utils.tick({ policy: "late", now: it.at(0) });
    went.push(
      ...(await it.rows("select partition from dispatch_policy.in_flight_jobs")).map((row) => row.partition),
    );
  }
  t.deepEqual(went, ["a", "a", "a", "n"]);
});

test("a class that is none is refused when the job is added", async (t) => {
  const it = await scenario(t, { class: (ctx: Ctx) => ctx.max });
  const error = await t.throwsAsync(() => it.stage("1@a", { max: 6 }), { instanceOf: PayloadError });
  t.is(error!.message, 'policy "p": class returned by its function must be a whole number, 0 to 5, got 6');
  await t.throwsAsync(() => it.stage("1@a", { max: 0.5 }), { instanceOf: PayloadError });
  t.is(await it.staged(), 0);
});

const REFUSED: [Record<string, unknown>, RegExp][] = [
  [{ class: 1 }, /class must be a function of the context, got 1$/],
  [{ classShare: { 1: 0.1 } }, /classShare must be left out without class, .*Give class/],
  [{ class: () => 1, fairness: null }, /class must be left out if fairness is null, .*Give them a priority/],
  [
    { class: () => 1, order: "strict" },
    /class must be left out if order is "strict", .*Leave one of the two out/,
  ],
  [{ class: () => 1, classShare: { 0: 0.5 } }, /"0"/],
  [{ class: () => 1, classShare: { 1: 1 } }, /classShare: 1 must be a number from 0.001 to 0.999, .*got 1$/],
  [
    { class: () => 1, classShare: { 1: 0.5, 2: 0.5 } },
    /classShare must leave something to class 0, .*1 in all.*Lower one/,
  ],
  [
    { class: () => 1, classShare: { 1: 0.5 }, gates: [shared("api", one)] },
    /classShare must be left out with the shared limit "api", .*a gate of its own/,
  ],
];
for (const [options, message] of REFUSED)
  test(`refused: ${message}`, (t) => {
    t.throws(() => definePolicy("p", { partitionBy: "key", ...options } as never), { message });
  });
