// The dry runs of the verbs that stop, go on and limit: they count, and nothing else happens.
import test from "ava";
import { concurrency, throttle } from "../../src/index.ts";
import { until } from "../helpers/engine.ts";
import { type Ctx, type Scenario, scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const a = { policy: "p", partition: "a" };
const acme = { policy: "p", gate: "account", key: "acme" };

/** Partition a and b of account acme, c of beta: 9 staged jobs, of which 3 go. */
async function world(t: Parameters<typeof scenario>[0]): Promise<Scenario> {
  const it = await scenario(t, {
    gates: [
      concurrency<Ctx>({ max: 1 }),
      concurrency<Ctx>({ name: "account", scope: (ctx) => ctx.account, max: 9 }),
      throttle<Ctx>({ name: "all", scope: "policy", rate: 100, per: "1 second" }),
    ],
  });
  await it.stage("4@a 3@b", { account: "acme" });
  await it.stage("2@c", { account: "beta" });
  await it.tickNow();
  return it;
}

/** All that a call could have changed. */
async function everything(it: Scenario) {
  const tables = [
    "policies",
    "partitions",
    "limiters",
    "overrides",
    "arrivals",
    "freed",
    "audit",
    "all_policies",
  ];
  const rowsOf = async (name: string) => {
    const rows = await table(it.pool, name).all();
    return rows.map((row) => JSON.stringify(row)).toSorted();
  };
  return Promise.all(tables.map(rowsOf));
}

const OF_A = { partitions: 1, staged: 3, inFlight: 1 };
const OF_ACME = { partitions: 2, staged: 5, inFlight: 2 };
const OF_P = { partitions: 3, staged: 6, inFlight: 3 };
const dryRun = true;

test("a dry run says what a verb would concern, and changes nothing", async (t) => {
  const it = await world(t);
  const { utils } = it;
  const end = new Date(Date.now() + 60_000);
  const set = { max: 1 };
  const heard: string[] = [];
  const listener = await it.transaction();
  await listener.query("commit");
  await listener.query("listen dispatch_policy");
  listener.on("notification", ({ payload }) => heard.push(payload ?? ""));
  const before = await everything(it);
  const one = { matched: 1, changed: 0 };
  t.deepEqual(await utils.pause({ ...a, until: end, dryRun }), { ...one, stored: false, ...OF_A });
  t.deepEqual(await utils.pause({ policy: "p", dryRun }), { ...one, stored: false, ...OF_P });
  t.deepEqual(await utils.pause({ all: true, dryRun }), { ...one, stored: false, ...OF_P });
  t.deepEqual(await utils.hold({ ...acme, forMs: 1000, dryRun }), { ...one, stored: false, ...OF_ACME });
  t.deepEqual(await utils.hold({ policy: "p", gate: "all", forMs: 1000, dryRun }), {
    ...{ ...one, stored: false },
    ...OF_P,
  });
  t.deepEqual(await utils.resume({ ...a, dryRun }), { ...one, ...OF_A });
  t.deepEqual(await utils.resume({ all: true, dryRun }), { ...one, ...OF_P });
  t.deepEqual(await utils.hold({ ...a, forMs: 1000, dryRun }), { ...one, stored: false, ...OF_A });
  t.deepEqual(await utils.disable({ policy: "p", dryRun }), { ...one, ...OF_P });
  t.deepEqual(await utils.enable({ policy: "p", dryRun }), { ...one, ...OF_P });
  t.deepEqual(await utils.setLimit({ ...acme, set, until: end, dryRun }), {
    ...one,
    stored: false,
    ...OF_ACME,
  });
  const everyKey = { policy: "p", gate: "account", set, dryRun };
  t.deepEqual(await utils.setLimit(everyKey), { matched: 2, changed: 0, stored: false, ...OF_P });
  const byContext = { policy: "p", gate: "concurrency", where: { account: "beta" }, set, dryRun };
  t.deepEqual(await utils.setLimit(byContext), {
    ...{ ...one, stored: false, partitions: 1, staged: 1, inFlight: 1 },
  });
  t.deepEqual(await utils.clearLimit({ ...acme, dryRun }), { matched: 0, changed: 0, ...OF_ACME });
  t.deepEqual(await everything(it), before);
  await it.rows("select pg_notify('dispatch_policy', 'the last one')");
  await until("what was sent before has come", () => heard.includes("the last one"));
  t.deepEqual(heard, ["the last one"]);
});

test("a dry run counts jobs that no tick has seen", async (t) => {
  const it = await world(t);
  await it.stage("2@new", { account: "acme" });
  const target = { policy: "p", partition: "new" };
  const counts = { matched: 1, changed: 0, stored: false, partitions: 1, staged: 2, inFlight: 0 };
  t.deepEqual(await it.utils.pause({ ...target, dryRun }), counts);
  t.like(await it.utils.pause({ policy: "p", dryRun }), { partitions: 3, staged: 8 });
});

test("where nothing matches yet, a dry run says that it would be stored", async (t) => {
  const { utils } = await world(t);
  const target = { policy: "p", partition: "nobody" };
  const nothing = { matched: 0, changed: 0, partitions: 0, staged: 0, inFlight: 0 };
  t.deepEqual(await utils.pause({ ...target, dryRun }), { ...nothing, stored: true });
  t.deepEqual(await utils.hold({ ...target, forMs: 1000, dryRun }), { ...nothing, stored: true });
  const set = { max: 1 };
  t.deepEqual(await utils.setLimit({ ...acme, key: "nobody", set, dryRun }), { ...nothing, stored: true });
  t.deepEqual(await utils.resume({ ...target, dryRun }), nothing);
  await utils.pause(target);
  t.deepEqual(await utils.resume({ ...target, dryRun }), { ...nothing, matched: 1 });
  t.deepEqual(await utils.pause({ ...target, dryRun }), { ...nothing, stored: true });
});

test("a dry run of clearLimit counts the limits that it would end", async (t) => {
  const { utils } = await world(t);
  await utils.setLimit({ ...acme, set: { max: 1 }, until: new Date(Date.now() + 60_000) });
  await utils.setLimit({ ...acme, set: { max: 2 }, from: new Date(Date.now() + 120_000) });
  t.like(await utils.clearLimit({ ...acme, dryRun }), { matched: 2, changed: 0, partitions: 2 });
  t.deepEqual(await utils.clearLimit(acme), { matched: 2, changed: 2 });
});

test("a dry run refuses what the call would refuse", async (t) => {
  const { utils } = await world(t);
  const past = new Date(0);
  await t.throwsAsync(utils.pause({ policy: "nobody", dryRun }), { message: /nobody/ });
  await t.throwsAsync(utils.pause({ ...a, until: past, dryRun }), { message: /until is / });
  await t.throwsAsync(utils.hold({ ...a, until: past, dryRun }), { message: /until is / });
  await t.throwsAsync(utils.setLimit({ ...acme, set: { rate: 1 }, dryRun }), { message: /no value 'rate'/ });
  await t.throwsAsync(utils.clearLimit({ ...acme, gate: "none", dryRun }), { message: /no gate 'none'/ });
  await t.throwsAsync(utils.enable({ policy: "nobody", dryRun }), { message: /nobody/ });
});
