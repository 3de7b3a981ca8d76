// What is stopped, by whom and until when.
import test from "ava";
import { definePolicy } from "../../src/index.ts";
import { scenario } from "../helpers/scenario.ts";
import { table } from "../helpers/table.ts";

const LATER = definePolicy("later", { partitionBy: "key" });
const LATEST = definePolicy("latest", { partitionBy: "key" });

test("a pause of all policies also stops one that is declared later, until all are resumed", async (t) => {
  const it = await scenario(t);
  t.like(await it.utils.pause({ all: true, reason: "incident 12", by: "ana" }), { matched: 1, changed: 1 });
  await it.makeUtils([it.own, LATER]);
  await it.utils.addJob("later", { key: "a" } as never);
  await it.stage("1@a");
  t.is((await it.utils.tick()).admitted, 0);
  const { policies, pauseOfAll } = await it.utils.status();
  t.like(pauseOfAll, { policy: null, by: "ana", reason: "incident 12", until: null });
  t.deepEqual(
    policies.map(({ policy, paused, pausedWithAll }) => [policy, paused, pausedWithAll]),
    [
      ["later", true, true],
      ["p", true, true],
    ],
  );
  t.like(await it.utils.resume({ all: true }), { matched: 2, changed: 2 });
  await it.makeUtils([it.own, LATER, LATEST]);
  t.deepEqual(await it.utils.stops(), []);
  await it.utils.addJob("latest", { key: "a" } as never);
  t.is((await it.utils.tick()).admitted, 3);
});

test("a policy that is declared again keeps its own stop, or none", async (t) => {
  const it = await scenario(t);
  await it.utils.pause({ all: true });
  await it.utils.resume({ policy: "p" });
  await it.makeUtils();
  t.like((await it.utils.status()).policies[0], { paused: false, pausedWithAll: false });
  await it.makeUtils([LATER]);
  await it.utils.pause({ policy: "later", by: "bo" });
  t.deepEqual(
    (await it.utils.status()).policies.map(({ paused, pausedWithAll }) => [paused, pausedWithAll]),
    [
      [true, false],
      [false, false],
    ],
  );
});

test("a pause of all that is over stops no new policy", async (t) => {
  const it = await scenario(t);
  await it.utils.pause({ all: true, until: new Date(Date.now() + 3_600_000) });
  await table(it.pool, "all_policies").set({ paused_until: () => "now() - interval '1 second'" });
  await it.makeUtils([LATER]);
  t.deepEqual(await it.utils.stops({ policy: "later" }), []);
  t.is((await it.utils.status()).pauseOfAll, null);
});

test("stops lists what is in force: of all, of a policy, of a partition that has jobs, and of one to come", async (t) => {
  const it = await scenario(t, {}, { others: [LATER] });
  await it.stage("1@a 1@b");
  await it.tickNow();
  const until = new Date(Date.now() + 60_000);
  await it.utils.pause({ all: true, by: "ana", reason: "incident 12" });
  await it.utils.pause({ policy: "p", partition: "a", by: "bo", until });
  await it.utils.hold({ policy: "p", partition: "b", by: "cy", until });
  await it.utils.pause({ policy: "p", partition: "new", by: "di" });
  const all = {
    policy: null,
    partition: null,
    kind: "pause",
    until: null,
    by: "ana",
    reason: "incident 12",
    seen: true,
  };
  const listed = [
    all,
    { ...all, policy: "later" },
    { ...all, policy: "p" },
    { policy: "p", partition: "a", kind: "pause", until, by: "bo", reason: null, seen: true },
    { policy: "p", partition: "b", kind: "hold", until, by: "cy", reason: null, seen: true },
    { policy: "p", partition: "new", kind: "pause", until: null, by: "di", reason: null, seen: false },
  ];
  const stops = async () => (await it.utils.stops()).map(({ since: _, ...stop }) => stop);
  t.deepEqual(await stops(), listed as never, "before the router has made the new one");
  await it.tickNow();
  t.deepEqual(await stops(), listed as never, "and after");
  t.deepEqual(
    (await it.utils.stops({ policy: "later" })).map(({ policy }) => policy),
    [null, "later"],
  );
});

test("a stop says since when it is, and one that changes nothing keeps that", async (t) => {
  const it = await scenario(t);
  await it.stage("1@a");
  await it.tickNow();
  const now = async () =>
    (await it.pool.query<{ now: Date }>("select clock_timestamp() as now")).rows[0]!.now;
  const sinces = async () =>
    Object.fromEntries(
      (await it.utils.stops()).map(({ policy, partition, kind, since }) => [
        partition ?? policy ?? "all",
        [kind, since],
      ]),
    );
  const before = await now();
  await it.utils.pause({ all: true });
  await it.utils.pause({ policy: "p", partition: "a" });
  await it.utils.pause({ policy: "p", partition: "new" });
  const after = await now();
  const first = await sinces();
  t.deepEqual(Object.keys(first).toSorted(), ["a", "all", "new", "p"]);
  for (const [what, [, since]] of Object.entries(first))
    t.true(since! >= before && since! <= after, `${what} ${since}`);
  await it.tickNow();
  t.deepEqual(await sinces(), first, "the router keeps that of one to come");
  await it.utils.hold({ policy: "p", partition: "new", forMs: 60_000 });
  t.deepEqual((await it.utils.stops()).find(({ kind }) => kind === "hold")?.since, first.new![1] as Date);
  await it.utils.resume({ policy: "p", partition: "a" });
  await it.utils.pause({ policy: "p", partition: "a" });
  t.true((await sinces()).a![1]! > after);
});

test("a stop of a partition that no job has had says so, and waits for the first", async (t) => {
  const it = await scenario(t);
  const a = { policy: "p", partition: "a" };
  const stored = { matched: 0, changed: 0, stored: true };
  t.deepEqual(await it.utils.pause(a), stored);
  await it.tickNow();
  t.deepEqual(
    await it.utils.hold({ ...a, forMs: 60_000 }),
    stored,
    "the router has made its row; no job has come",
  );
  await it.utils.resume(a);
  await it.utils.pause(a);
  await it.stage("1@a");
  t.like(
    await it.utils.pause({ ...a, by: "ana" }),
    { matched: 1, stored: false },
    "its job is not routed yet",
  );
  t.is((await it.tickNow()).admitted, 0);
  t.like(await it.utils.pause(a), { matched: 1, changed: 1, stored: false });
  t.like((await it.utils.stops())[0], { partition: "a", seen: true });
});

test("a pause of all before the first policy is stored for it", async (t) => {
  const it = await scenario(t);
  await it.utils.removePolicy({ policy: "p" });
  t.deepEqual(await it.utils.pause({ all: true }), { matched: 0, changed: 0, stored: true });
  await it.makeUtils();
  t.true((await it.utils.status()).policies[0]?.pausedWithAll);
});
