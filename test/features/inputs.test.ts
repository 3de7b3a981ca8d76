import test from "ava";
import { concurrency, definePolicy, PayloadError, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, FULL, policyOf, type Scenario, scenario, sqlPolicyOf } from "../helpers/scenario.ts";
import { nameOf } from "../helpers/table.ts";

const nothing = async (it: Scenario) => {
  const [row] = await it.rows(`select (select count(*)::int from dispatch_policy.staged_jobs) as staged,
    (select count(*)::int from dispatch_policy.partitions) as partitions,
    (select count(*)::int from graphile_worker.jobs) as jobs`);
  return row.staged + row.partitions + row.jobs === 0;
};

const NASTY = `it's "quoted"\n\r\t\\ ; drop table ${nameOf("staged_jobs")}; -- $1 $$ \u{1F469}‍\u{1F680} ünï {}[]:,`;
const longKey = (bytes: number) => {
  const start = Buffer.from(NASTY);
  return NASTY + "x".repeat(bytes - start.length);
};

test("scenario 30: payloads of a megabyte", async (t) => {
  const blob = `${"🚀".repeat(1000)}${"x".repeat(1_000_000)}`;
  const lean = definePolicy("lean", {
    context: (payload: unknown) => ({ key: (payload as { key: string }).key }),
    partitionBy: (ctx) => ctx.key,
    gates: [concurrency({ max: 2 })],
  });
  const it = await scenario(t, lean);
  for (let n = 0; n < 5; n++) await it.utils.addJob("lean", { key: "k", blob });
  t.is((await it.tickNow()).admitted, 2);
  const seen: string[] = [];
  await it.worker({ tasks: { lean: async (payload) => void seen.push((payload as { blob: string }).blob) } });
  await until("all have run", async () => seen.length === 5);
  t.true(seen.every((one) => one === blob));
});

for (const key of [longKey(1024), NASTY, "", " ", "'", "null", "--", "🚀".repeat(256), "a\nb", "%s %I $1"]) {
  test(`scenario 30: the key ${JSON.stringify(key.slice(0, 40))} of ${Buffer.byteLength(key)} bytes`, async (t) => {
    const it = await scenario(t, {
      gates: [concurrency<Ctx>({ max: 1 }), throttle<Ctx>({ rate: 5, per: "1 hour" })],
    });
    await it.utils.addJob("p", { key });
    await it.utils.addJob("p", { key });
    t.is((await it.tick()).admitted, 1);
    t.is((await it.partition(key)).staged, 1);
    t.is((await it.limiter("concurrency", key)).in_flight, 1);
    await it.utils.pause({ policy: "p", partition: key });
    await it.finish(1);
    t.is((await it.tick()).admitted, 0);
    await it.utils.resume({ policy: "p", partition: key });
    await it.utils.setLimit({ policy: "p", gate: "concurrency", key, set: { max: 5 } });
    t.is((await it.tick()).admitted, 1);
  });
}

test("scenario 30: such keys from SQL, too", async (t) => {
  const it = await scenario(t, sqlPolicyOf("s", { gates: [concurrency({ max: 1 })] }));
  const key = longKey(1024);
  await it.rows("select dispatch_policy.add_job('s', $1)", [JSON.stringify({ key })]);
  await it.rows("select dispatch_policy.add_job('s', '{}', partition_key => $1)", [key]);
  t.is((await it.tickNow()).admitted, 1, "of one partition, whose cap is 1");
  t.is((await it.partition(key)).staged, 1);
});

test("scenario 30: a number and its text are one key", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  await it.utils.addJob("p", { key: 5 });
  await it.utils.addJob("p", { key: "5" });
  t.is((await it.tick()).admitted, 1);
});

test("scenario 30: a task identifier of 128 characters with quotes in it", async (t) => {
  const name = `it's "a" task; -- ${"x".repeat(110)}`;
  const it = await scenario(t, sqlPolicyOf(name, { gates: [concurrency({ max: 1 })] }));
  await it.utils.addJob(name, { key: "k" });
  await it.rows('select dispatch_policy.add_job($1, \'{"key": "k"}\')', [name]);
  t.is((await it.tickNow()).admitted, 1);
  t.is(await it.staged(), 1);
});

test.serial("scenario 30: very many keys", async (t) => {
  t.timeout(300_000);
  const keys = FULL ? 100_000 : 20_000;
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  const page = 20_000;
  for (let from = 0; from < keys; from += page) {
    await it.utils.addJobs(
      Array.from({ length: page }, (_, n) => ({
        identifier: "p",
        payload: { key: `k${from + n}` },
      })) as never,
    );
  }
  const routed = async () =>
    (await it.rows("select count(*)::int as n from dispatch_policy.partitions"))[0].n as number;
  // a tick routes a batch and admits, however many are left
  while ((await routed()) < keys) t.is((await it.tick()).admitted, 50);
  const started = performance.now();
  t.is((await it.tick()).admitted, 50);
  t.log(`a tick beside ${keys} keys: ${Math.round(performance.now() - started)} ms`);
});

const context = { context: (payload: unknown) => payload as { key: string; cost: number; weight: number } };
const strict = definePolicy("strict", {
  ...context,
  partitionBy: (ctx) => ctx.key,
  cost: (ctx) => ctx.cost,
  weight: (ctx) => ctx.weight,
});

for (const [what, bad, message] of [
  ["a NUL in a key", { key: "a\0b" }, /NUL/],
  ["half a surrogate pair in a key", { key: "a\ud83d" }, /surrogate/],
  ["a key of 1,025 bytes", { key: "x".repeat(1025) }, /1,?024 bytes/],
  ["a key of 257 emoji", { key: "🚀".repeat(257) }, /1,?024 bytes/],
  ["no key", { key: undefined }, /partitionBy|context/],
  ["null as a key", { key: null }, /partitionBy/],
  ["an object as a key", { key: {} }, /partitionBy/],
  ["NaN as a key", { key: Number.NaN }, /./],
  ["a NaN cost", { cost: Number.NaN }, /./],
  ["an infinite cost", { cost: Number.POSITIVE_INFINITY }, /./],
  ["a negative cost", { cost: -1 }, /cost/],
  ["a negative weight", { weight: -1 }, /weight/],
  ["a weight of 0", { weight: 0 }, /weight/],
] as const) {
  test(`scenario 30: ${what} is refused, and nothing is staged`, async (t) => {
    const it = await scenario(t, strict);
    const good = { key: "k", cost: 1, weight: 1 };
    const payload = { ...good, ...bad };
    const error = await t.throwsAsync(it.utils.addJob(strict, payload as never), { message });
    t.regex(error.message, /strict/);
    const specs = [good, payload, good].map((one) => ({ identifier: "strict", payload: one }));
    await t.throwsAsync(it.utils.addJobs(specs as never), { message });
    t.true(await nothing(it));
  });
}

for (const [what, cost] of [
  ["NaN", () => Number.NaN],
  ["-1", () => -1],
] as const) {
  test(`scenario 30: a cost function that gives ${what} is refused`, async (t) => {
    const it = await scenario(t, { cost });
    await t.throwsAsync(it.stage("3@k"), { message: /cost/ });
    t.true(await nothing(it));
  });
}

test("scenario 30: from SQL a key of 1,025 bytes, none at all, and null are refused", async (t) => {
  const it = await scenario(t, sqlPolicyOf("s", {}));
  for (const payload of [{ key: "x".repeat(1025) }, {}, { key: null }, { key: {} }]) {
    await t.throwsAsync(it.rows("select dispatch_policy.add_job('s', $1)", [JSON.stringify(payload)]), {
      message:
        payload.key === undefined || typeof payload.key === "object"
          ? /partitionBy path key/
          : /at most 1024/,
    });
  }
  await t.throwsAsync(
    it.rows("select dispatch_policy.add_job('s', '{}', partition_key => $1)", ["x".repeat(1025)]),
    {
      message: /1,?024/,
    },
  );
  t.true(await nothing(it));
});

const KEPT = [
  "7",
  "7.00",
  "1e3",
  "1E-7",
  "0.10",
  "-0",
  "-1.50",
  "123456789012345",
  "9007199254740991",
  "0.1234567890123450",
];
for (const written of KEPT) {
  test(`scenario 30: the number ${written} is the same key from SQL and from JavaScript`, async (t) => {
    const it = await scenario(t, sqlPolicyOf("s", { gates: [concurrency({ max: 1 })] }));
    await it.rows("select dispatch_policy.add_job('s', $1)", [`{"key":${written}}`]);
    await it.utils.addJob("s", { key: JSON.parse(written) } as never);
    t.is((await it.tickNow()).admitted, 1);
  });
}

const ROUNDED = [
  "9007199254740993",
  "-9007199254740992",
  "1e21",
  "1e400",
  "0.1234567890123456",
  "12345678901234567890.5",
];
for (const written of ROUNDED) {
  test(`scenario 30: the number ${written}, which JavaScript may round, is no key on any path`, async (t) => {
    const it = await scenario(t, sqlPolicyOf("s"), { others: [policyOf("f")] });
    const payload = `{"key":${written}}`;
    const message = /2\^53 - 1|rounded|finite|Infinity/;
    // by SQL and by JavaScript
    await t.throwsAsync(it.rows("select dispatch_policy.add_job('s', $1)", [payload]), {
      message,
      code: "DPKEY",
    });
    for (const task of ["s", "f"])
      await t.throwsAsync(it.utils.addJob(task, JSON.parse(payload) as never), {
        message,
        instanceOf: PayloadError,
      });
    // adoption leaves it, and it fails at its start
    await it.rows("select graphile_worker.add_job('s', $1, max_attempts => 1)", [payload]);
    t.deepEqual(await it.utils.adopt({ task: "s" }), { matched: 1, changed: 0 });
    await it.rows("select dispatch_policy.add_job('f', $1)", [payload]);
    await it.utils.tick({ policy: "f" });
    t.regex((await it.rows("select error from dispatch_policy.staged_jobs"))[0].error, message);
    await it.worker({ tasks: { s: () => t.fail("it runs") }, loop: false });
    const failure = () => it.rows("select last_error from graphile_worker.jobs where last_error is not null");
    await until("it has failed", async () => (await failure()).length === 1);
    t.regex((await failure())[0].last_error, message);
  });
}
