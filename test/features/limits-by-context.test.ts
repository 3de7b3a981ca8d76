// Limits for the partitions whose context has some values, and for those to come.
import test from "ava";
import { ArgumentError, concurrency, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const CAP = { policy: "p", gate: "concurrency" };
const BUCKET = { policy: "p", gate: "throttle" };
const ACME = { account: "acme" };

test("a limit by context holds for partitions that are there, and for those to come", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 3 })] });
  await it.stage("9@a", ACME);
  await it.stage("9@b", { account: "beta" });
  await it.stage("1@c", ACME);
  await it.utils.tick();
  await it.finish(1, "c");
  t.like(await it.utils.setLimit({ ...CAP, where: ACME, set: { max: 1 }, by: "ana" }), {
    matched: 2,
    stored: false,
  });
  await it.stage("9@c", ACME);
  await it.stage("9@new", ACME);
  await it.tickNow();
  await it.tickNow();
  t.deepEqual(await it.inFlightBy(), { a: 3, b: 3, c: 1, new: 1 });
  t.is((await it.limiter("concurrency", "new")).max, 1);
  t.like((await it.utils.limits())[0], {
    key: null,
    where: ACME,
    override: { max: 1 },
    by: "ana",
    seen: null,
  });
  t.like(await it.utils.clearLimit({ ...CAP, where: ACME }), { changed: 1 });
  await it.tickNow();
  t.deepEqual(await it.inFlightBy(), { a: 3, b: 3, c: 3, new: 3 }, "those who waited were woken");
});

test("one of a key goes before one of a context, and that before one of every key; of two contexts the last", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 9 })] });
  await it.stage("1@a 1@b", ACME);
  await it.stage("1@c", { account: "beta" });
  await it.tickNow();
  await it.utils.setLimit({ ...CAP, key: "a", set: { max: 4 } });
  await it.utils.setLimit({ ...CAP, where: { ...ACME, shard: "default" }, set: { max: 2 } });
  await it.utils.setLimit({ ...CAP, where: ACME, set: { max: 3 } });
  await it.utils.setLimit({ ...CAP, set: { max: 5 } });
  const maxima = async () =>
    Promise.all(["a", "b", "c"].map(async (key) => (await it.limiter("concurrency", key)).max));
  t.deepEqual(await maxima(), [4, 3, 5]);
  await it.utils.setLimit({ ...CAP, where: { shard: "default", ...ACME }, set: { max: 6 } });
  t.deepEqual(await maxima(), [4, 6, 5], "the order of the names is none");
  t.is((await it.utils.limits()).length, 4);
  await it.utils.clearLimit({ ...CAP, key: "a" });
  await it.utils.clearLimit({ ...CAP, where: { ...ACME, shard: "default" } });
  t.deepEqual(await maxima(), [3, 3, 5]);
  await it.stage("9@b", ACME);
  const explained = await it.utils.explain({ policy: "p", partition: "b" });
  t.is(explained.gates.length > 0 && explained.gates[0]?.source, "override");
});

test("numbers and booleans of a context are told from texts", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 9 })] });
  await it.stage("1@a", { account: 7 });
  await it.stage("1@b", { account: "7" });
  t.like(await it.utils.setLimit({ ...CAP, where: { account: 7 }, set: { max: 1 } }), {
    matched: 0,
    stored: true,
  });
  await it.tickNow();
  t.is((await it.limiter("concurrency", "a")).max, 1);
  t.is((await it.limiter("concurrency", "b")).max, 9);
});

test("a rate by context counts from its beginning to its end", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 60, per: "1 minute", burst: 60 })] });
  await it.stage("200@a", ACME);
  await it.stage("200@b");
  t.is((await it.tick(0)).admitted, 120);
  await it.utils.setLimit({ ...BUCKET, where: ACME, set: { rate: 6 }, from: it.at(10), until: it.at(30) });
  t.is(
    (await it.tick(40)).admitted,
    40 + 22,
    "a: 10 s at one a second, 20 s at one in ten, 10 s at one a second",
  );
});

test("another context brings nothing for the time before it", async (t) => {
  const it = await scenario(t, { gates: [throttle<Ctx>({ rate: 600, per: "1 minute", burst: 600 })] });
  const free = { account: "free" };
  await it.stage("600@a", free);
  t.is((await it.tick(0)).admitted, 100);
  for (let pass = 0; pass < 5; pass++) await it.tick(0);
  t.is(Object.values(await it.inFlightBy())[0], 600);
  await it.utils.setLimit({ ...BUCKET, where: free, set: { rate: 6 }, from: it.at(0) });
  await it.stage("50@a", { account: "pro" });
  t.is((await it.tick(50)).admitted, 5, "50 s at one in ten seconds, though no longer free");
  t.is((await it.tick(52)).admitted, 20, "2 s at ten a second");
});

test("a context that ends a limit wakes the partition that waits", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 3 })] });
  await it.utils.setLimit({ ...CAP, where: { account: "free" }, set: { max: 1 } });
  await it.stage("3@a", { account: "free" });
  t.is((await it.tickNow()).admitted, 1);
  t.is((await it.tickNow()).claimed, 0, "it waits");
  await it.stage("1@a", { account: "pro" });
  t.is((await it.tickNow()).admitted, 2);
});

test("a job past the policy goes by the limit of its context", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 3 })] });
  await it.stage("1@a", { account: "free" });
  await it.tickNow();
  await it.finish(1);
  await it.utils.setLimit({ ...CAP, where: { account: "pro" }, set: { max: 0 } });
  await it.worker({ tasks: { p: async () => {} }, loop: false });
  await it.rows(`select graphile_worker.add_job('p', '{"key": "a", "account": "pro"}')`);
  await until("it is staged", async () => (await it.staged("a")) === 1);
  await it.tickNow();
  t.is((await it.limiter("concurrency", "a")).max, 0);
  t.is(await it.staged("a"), 1);
});

test("a limit by context must name values of the context, for a gate over the partition, and no key", async (t) => {
  const it = await scenario(t, {
    gates: [
      concurrency<Ctx>({ max: 3 }),
      concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 3 }),
      concurrency<Ctx>({ name: "all", scope: "policy", max: 3 }),
    ],
  });
  const refused = (options: object, message: RegExp) =>
    t.throwsAsync(it.utils.setLimit({ ...CAP, set: { max: 1 }, ...options } as never), {
      instanceOf: ArgumentError,
      message,
    });
  await refused({ key: "a", where: ACME }, /set_limit: key is 'a' and where is .*, expected one of them/);
  await refused(
    { gate: "account", where: ACME },
    /gate 'account' counts over a key, and not over a partition/,
  );
  await refused({ gate: "all", where: ACME }, /gate 'all' counts over the whole policy/);
  for (const where of [{}, { account: null }, { account: ["acme"] }, { account: {} }, { account: undefined }])
    await refused({ where }, /where is .*, expected an object of names in the context/);
  await refused({ where: "acme" }, /setLimit: where must be an object, got "acme"/);
  await t.throwsAsync(it.utils.clearLimit({ policy: "p", gate: "all", where: ACME }), {
    message: /clear_limit: where is/,
  });
});

test("a limit of 3,000 partitions is announced in steps, and wakes them all", async (t) => {
  const it = await scenario(
    t,
    { gates: [concurrency<Ctx>({ max: 1 })] },
    { settings: { partitionBatchSize: 5000 } },
  );
  const keys = Array.from({ length: 3000 }, (_, n) => `1@k${n} 1@k${n}`).join(" ");
  await it.stage(keys, ACME);
  t.is((await it.tickNow()).admitted, 3000);
  await it.tickNow();
  await it.utils.setLimit({ ...CAP, where: ACME, set: { max: 2 } });
  const admitted: number[] = [];
  while (admitted.length < 20 && admitted.reduce((sum, n) => sum + n, 0) < 3000)
    admitted.push((await it.tickNow()).admitted);
  t.is(
    admitted.reduce((sum, n) => sum + n, 0),
    3000,
  );
  t.true(admitted[0]! <= 1000, `${admitted}`);
  t.is((await it.utils.sweep()).repaired.blocked, 0);
});

test("a sweep leaves to the router what a change of limits wakes, and finds who waits in vain for all that", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 1 })] });
  const repaired = async () => (await it.utils.sweep()).repaired.blocked;
  for (const which of [{ where: ACME }, { key: "a" }, {}]) {
    await it.stage("1@a", ACME);
    await it.utils.setLimit({ ...CAP, ...which, set: { max: 0 } });
    t.is((await it.tickNow()).admitted, 0);
    await it.utils.clearLimit({ ...CAP, ...which });
    t.is(await repaired(), 0, "it is not announced yet");
    t.is((await it.tickNow()).admitted, 1);
    await it.finish(1);
  }
  await it.utils.setLimit({ ...CAP, where: ACME, set: { max: 0 } });
  await it.stage("1@a", ACME);
  await it.tickNow();
  await table(it.pool, "overrides").remove();
  t.is(await repaired(), 1, "nobody announces that");
});
