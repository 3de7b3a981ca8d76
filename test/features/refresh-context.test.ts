// What a partition's context holds changes in the application, and its limits with it.
import test from "ava";
import {
  ArgumentError,
  concurrency,
  definePolicy,
  PayloadError,
  UnknownPolicyError,
} from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, scenario, sqlPolicyOf } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const P = { policy: "p" };
const CAPPED = { gates: [concurrency<Ctx>({ max: (ctx) => ctx.max })] };

test("another value in the context counts without another job", async (t) => {
  const it = await scenario(t, CAPPED);
  await it.stage("9@a", { max: 2, account: "acme" });
  t.is((await it.tickNow()).admitted, 2);
  t.is((await it.tickNow()).claimed, 0, "it waits");
  const asked = { ...P, partition: "a", context: { max: 5 }, reason: "an upgrade", by: "ana" };
  t.deepEqual(await it.utils.refreshContext(asked), { matched: 1, changed: 1 });
  t.is((await it.tickNow()).admitted, 3);
  t.like((await it.partition("a")).context, { max: 5, account: "acme" });
  t.deepEqual(await it.utils.refreshContext(asked), { matched: 1, changed: 0 }, "it is so already");
  t.like((await it.rows("select * from dispatch_policy.audit order by id limit 1"))[0], {
    verb: "refresh_context",
    partition: "a",
    reason: "an upgrade",
    by: "ana",
    changed: 1,
  });
  await it.stage("1@a", { max: 1 });
  await it.tickNow();
  t.is((await it.partition("a")).context.max, 1, "a later job brings its own");
});

test("it is for the partitions of an account, or for all, also those that no pass has seen", async (t) => {
  const it = await scenario(t, CAPPED);
  await it.stage("9@a", { account: "acme" });
  await it.stage("9@b", { account: "beta" });
  await it.tickNow();
  await it.stage("9@new", { account: "acme" });
  const max = async () =>
    Promise.all(["a", "b", "new"].map(async (key) => (await it.limiter("concurrency", key)).max));
  t.like(await it.utils.refreshContext({ ...P, where: { account: "acme" }, context: { max: 3 } }), {
    matched: 2,
  });
  await it.tickNow();
  t.deepEqual(await max(), [3, 1, 3]);
  t.like(await it.utils.refreshContext({ ...P, context: { max: 4 } }), { matched: 3, changed: 3 });
  await it.tickNow();
  t.deepEqual(await max(), [4, 4, 4]);
  t.like(await it.utils.refreshContext({ ...P, partition: "nobody", context: { max: 3 } }), { matched: 0 });
});

test("a limit by context that begins or ends with it", async (t) => {
  const it = await scenario(t, { gates: [concurrency<Ctx>({ max: 3 })] });
  await it.utils.setLimit({ ...P, gate: "concurrency", where: { account: "free" }, set: { max: 1 } });
  await it.stage("9@a", { account: "free" });
  t.is((await it.tickNow()).admitted, 1);
  await it.utils.refreshContext({ ...P, partition: "a", context: { account: "pro" } });
  t.is((await it.tickNow()).admitted, 2);
});

test("more partitions than one step takes", async (t) => {
  const it = await scenario(t, CAPPED);
  await it.stage(Array.from({ length: 2100 }, (_, n) => `1@k${n}`).join(" "));
  t.deepEqual(await it.utils.refreshContext({ ...P, context: { max: 2 } }), { matched: 2100, changed: 2100 });
});

test("two who change two values of one context both succeed", async (t) => {
  const it = await scenario(t, CAPPED);
  await it.stage("1@a");
  await it.tickNow();
  const turn = await it.transaction();
  await table(turn, "turns").lock({ step: "limits" });
  const both = Promise.all([
    it.utils.refreshContext({ ...P, partition: "a", context: { max: 7 } }),
    it.utils.refreshContext({ ...P, partition: "a", context: { account: "acme" } }),
  ]);
  await until("both have read the context, and wait", async () => {
    const [{ n }] = await it.rows(
      "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and query like '%_refresh_contexts%' and datname = current_database()",
    );
    return n === 2;
  });
  await turn.query("commit");
  await both;
  await it.tickNow();
  t.like((await it.partition("a")).context, { max: 7, account: "acme" });
});

test("a context that a job brought since it was read is read again", async (t) => {
  const it = await scenario(t, CAPPED);
  await it.stage("1@a", { account: "old" });
  await it.tickNow();
  const turn = await it.transaction();
  await table(turn, "turns").lock({ step: "limits" });
  const refreshing = it.utils.refreshContext({ ...P, partition: "a", context: { max: 7 } });
  await until("it has read the context, and waits", async () => {
    const [{ n }] = await it.rows(
      "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and query like '%_refresh_contexts%' and datname = current_database()",
    );
    return n === 1;
  });
  await it.stage("1@a", { account: "new" });
  await turn.query("commit");
  t.deepEqual(await refreshing, { matched: 1, changed: 1 });
  await it.tickNow();
  t.like((await it.partition("a")).context, { max: 7, account: "new" });
});

test("it names what is wrong", async (t) => {
  const it = await scenario(t, {
    gates: [
      concurrency<Ctx>({
        max: ({ max }) => {
          if (max === 13) throw new Error("no such plan");
          return max;
        },
      }),
    ],
  });
  await it.stage("1@a");
  await it.tickNow();
  const refused = (options: object, how: object) =>
    t.throwsAsync(it.utils.refreshContext({ ...P, context: {}, ...options } as never), how);
  await refused({ policy: "q" }, { instanceOf: UnknownPolicyError });
  await refused({ context: 7 }, { instanceOf: ArgumentError, message: /context must be an object/ });
  await refused({ context: { at: () => 7 } }, { instanceOf: ArgumentError });
  await refused({ contxt: {} }, { instanceOf: ArgumentError, message: /contxt/ });
  await refused({ context: { max: 13 } }, { instanceOf: PayloadError, message: /no such plan/ });
  const others = await it.makeUtils([]);
  await t.throwsAsync(others.refreshContext({ ...P, context: {} }), {
    instanceOf: ArgumentError,
    message:
      /policy 'p' has functions of the context, which SQL cannot call: weight, gate 'concurrency'\. Call utils\./,
  });
  await table(it.pool, "policies").set({ definition_hash: "another" });
  await refused(
    {},
    { instanceOf: ArgumentError, message: /another definition of policy 'p' than the one in force/ },
  );
});

/** Its numbers are no functions, so only limits by context depend on the context. */
const CONSTANT = definePolicy("p", {
  context: (payload) => payload as { key: string; account: string },
  partitionBy: (ctx) => ctx.key,
  gates: [concurrency({ max: 3 })],
});
const FREE = { account: "free" };

test("SQL does it for a policy whose limits are no functions, and so do utils without the policy", async (t) => {
  const it = await scenario(t, CONSTANT);
  const refresh = async (rest: string) =>
    (await it.rows(`select matched, changed from dispatch_policy.refresh_context('p', ${rest})`))[0];
  await it.utils.setLimit({ ...P, gate: "concurrency", where: FREE, set: { max: 1 } });
  await it.stage("9@a 9@b", FREE);
  t.is((await it.tickNow()).admitted, 2);
  await it.stage("9@new", FREE); // no pass has seen it
  t.deepEqual(await refresh(`'{"account": "pro"}', partition => 'a', reason => 'paid', by => 'ana'`), {
    matched: 1,
    changed: 1,
  });
  await it.tickNow();
  t.deepEqual(await it.inFlightBy(), { a: 3, b: 1, new: 1 });
  const ofFree = `'{"plan": {"seats": 3}}', "where" => '{"account": "free"}'`;
  t.deepEqual(await refresh(ofFree), { matched: 2, changed: 2 });
  t.deepEqual(await refresh(ofFree), { matched: 2, changed: 0 }, "it is so already");
  await it.tickNow();
  t.deepEqual((await it.partition("b")).context, { key: "b", ...FREE, plan: { seats: 3 } });
  t.deepEqual(await refresh(`'{"plan": 1}', partition => 'nobody'`), { matched: 0, changed: 0 });
  t.like((await it.rows("select * from dispatch_policy.audit where partition = 'a'"))[0], {
    ...{ verb: "refresh_context", policy: "p", reason: "paid", by: "ana", matched: 1, changed: 1 },
  });
  const others = await it.makeUtils([]);
  t.deepEqual(await others.refreshContext({ ...P, where: FREE, context: { account: "pro" } }), {
    matched: 2,
    changed: 2,
  });
  await it.tickNow();
  t.deepEqual(await it.inFlightBy(), { a: 3, b: 3, new: 3 });
});

test("a dry run counts the partitions and their jobs, and changes nothing", async (t) => {
  const it = await scenario(t, CAPPED, { others: [sqlPolicyOf("plain")] });
  await it.stage("4@a 3@b", { max: 1, account: "acme" });
  await it.stage("2@c", { account: "beta" });
  await it.tickNow();
  await it.stage("2@new", { account: "acme" });
  const refresh = { ...P, where: { account: "acme" }, context: { max: 3 }, dryRun: true };
  const arrivals = table(it.pool, "arrivals");
  const before = await arrivals.all({}, "id");
  const counts = { matched: 3, changed: 0, partitions: 3, staged: 7, inFlight: 2 };
  t.deepEqual(await it.utils.refreshContext(refresh), counts);
  const nobody = { matched: 0, changed: 0, partitions: 0, staged: 0, inFlight: 0 };
  t.deepEqual(await it.utils.refreshContext({ ...refresh, where: { account: "none" } }), nobody);
  t.deepEqual(await arrivals.all({}, "id"), before);
  t.deepEqual(await it.rows("select * from dispatch_policy.audit"), []);
  await it.rows(`select dispatch_policy.add_job('plain', '{"key": "z"}')`);
  const others = await it.makeUtils([]);
  t.deepEqual(await others.refreshContext({ policy: "plain", context: { plan: "pro" }, dryRun: true }), {
    ...{ matched: 1, changed: 0, partitions: 1, staged: 1, inFlight: 0 },
  });
  await t.throwsAsync(others.refreshContext(refresh), { message: /has functions of the context/ });
  await table(it.pool, "policies").set({ definition_hash: "another" });
  await t.throwsAsync(it.utils.refreshContext(refresh), { message: /another definition of policy 'p'/ });
});

test("two SQL calls that change two values of one context take turns", async (t) => {
  const it = await scenario(t, CONSTANT);
  await it.stage("1@a");
  await it.tickNow();
  const first = await it.transaction();
  await first.query(`select dispatch_policy.refresh_context('p', '{"plan": "pro"}')`);
  const second = it.rows(`select * from dispatch_policy.refresh_context('p', '{"account": "acme"}')`);
  await until("the second waits", async () => {
    const [{ n }] = await it.rows(
      "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and query like '%refresh_context%' and datname = current_database()",
    );
    return n === 1;
  });
  await first.query("commit");
  await second;
  await it.tickNow();
  t.deepEqual((await it.partition("a")).context, { key: "a", plan: "pro", account: "acme" });
});

test("SQL refuses what it cannot do, and changes nothing", async (t) => {
  const it = await scenario(t, CAPPED, { others: [sqlPolicyOf("plain")] });
  await it.stage("1@a");
  await it.tickNow();
  const refused = async (args: string, message: RegExp) =>
    t.throwsAsync(it.rows(`select dispatch_policy.refresh_context(${args})`), { message });
  await refused(
    `'p', '{"max": 7}'`,
    /policy 'p' has functions of the context.*: weight, gate 'concurrency'\./,
  );
  await refused(`'plain', '7'`, /context is 7, expected an object/);
  await refused(`'plain', null`, /context is null, expected an object/);
  await refused(`'plain', '{}', "where" => '[1]'`, /where is \[1\], expected an object/);
  await refused(`'nobody', '{}'`, /unknown policy/);
  const fixed = await it.transaction();
  await fixed.query("set transaction isolation level repeatable read");
  await t.throwsAsync(fixed.query(`select dispatch_policy.refresh_context('plain', '{}')`), {
    message: /refresh_context: transaction_isolation is repeatable read/,
  });
  t.is((await it.partition("a")).context.max, 1);
  t.deepEqual(await it.rows("select * from dispatch_policy.audit"), []);
});
