// Which partitions a pass claims, if more are eligible than it claims.
import test from "ava";
import { concurrency, type Engine, engine, throttle } from "../helpers/engine.ts";
import { FULL } from "../helpers/scenario.ts";

/** 50,000, by SCENARIO_FULL=1: `npm run test:full` finds these tests by the number in their titles. */
const MANY = FULL ? 50_000 : 2000;
const MANY_OTHERS = MANY.toLocaleString("en");
const keys = (count: number, prefix = "k") => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
/** Ten at once over the whole policy. */
const ten = concurrency(10, { name: "all", scope: "policy" });

async function startsWith(world: Engine, key: string, now: Date | null = null): Promise<number> {
  await world.admit({ claim: 50, now });
  return (await world.inFlight(key)).length;
}

/** Routes all that is staged: a step consumes at most 10,000 arrivals. */
async function routeAll(world: Engine): Promise<void> {
  while ((await world.route()) >= 10_000);
}

test(`a heavy partition that comes after ${MANY_OTHERS} others goes in the next pass`, async (t) => {
  const world = await engine(t, { gates: [ten] });
  await world.stage(keys(MANY));
  await world.stage("heavy", { weight: 100 });
  await routeAll(world);
  t.is(await startsWith(world, "heavy"), 1);
});

test("a partition that had nothing lately goes before 500 that had their share", async (t) => {
  const world = await engine(t, { gates: [concurrency(505, { name: "all", scope: "policy" })] });
  await world.stage(keys(500));
  t.is(await world.passes(10), 500);
  await world.stage(keys(500));
  await world.stage("quiet");
  await world.route();
  t.is(await startsWith(world, "quiet"), 1);
});

test(`of ${MANY_OTHERS} partitions that become due at one time, a heavy one goes in the first pass`, async (t) => {
  const world = await engine(t, { gates: [ten] });
  const at = Date.now() + 60_000;
  await world.stage(keys(MANY - 1), { runAt: new Date(at) });
  await world.stage("heavy", { weight: 100, runAt: new Date(at + 1) });
  await routeAll(world);
  t.is(await startsWith(world, "heavy", new Date(at + 1000)), 1);
});

test("an arrival for a partition that is in line does not put it back", async (t) => {
  const world = await engine(t, { gates: [ten], halfLifeSeconds: null });
  await world.stage("first");
  await world.route();
  await world.stage(keys(100));
  await world.route();
  await world.stage("first");
  await world.route();
  t.is(await startsWith(world, "first"), 1);
});

for (const waits of ["blocked", "ready"] as const) {
  test(`a partition that had its share goes on beside a stream of new ones (${waits})`, async (t) => {
    const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
    await world.stage(["old", "old"]);
    t.is(await world.passes(2), 1);
    if (waits === "ready") {
      await world.table("partitions").set({ blocked_on: null, denied_until: "-infinity" });
      t.true((await world.partition("old")).ready);
    }
    const start = Date.now();
    let halfLives = 0;
    do {
      const now = new Date(start + ++halfLives * 60_000);
      await world.stage(keys(2, `new${halfLives}-`));
      await world.release(await world.inFlight());
      await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [now]);
      await world.admit({ claim: 1, now });
    } while ((await world.inFlight("old")).length === 0 && halfLives < 30);
    t.true(halfLives > 1 && halfLives < 15, `after ${halfLives} half-lives`);
  });
}

/** How many seconds until "old" goes, if as many newcomers as one per second and place come each second. */
async function secondsUntilOld(
  world: Engine,
  { weight, claim = 50, perSecond = 2 }: { weight: number; claim?: number; perSecond?: number },
): Promise<number> {
  const start = Date.now();
  const at = (seconds: number) => new Date(start + seconds * 1000);
  const turn = async (seconds: number) => {
    await world.release(await world.inFlight());
    await world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [at(seconds)]);
    await world.admit({ claim, now: at(seconds) });
  };
  await world.stage(keys(perSecond, "first-"), { weight });
  await turn(0);
  await world.stage("old");
  for (let seconds = 1; seconds <= 60; seconds++) {
    await world.stage(keys(perSecond, `new${seconds}-`), { weight });
    await turn(seconds);
    if ((await world.inFlight("old")).length > 0) return seconds;
  }
  return Number.POSITIVE_INFINITY;
}

const account = { name: "account", scope: () => "acme" };
for (const [where, options, others] of [
  ["a cap over the policy", { gates: [concurrency(1, { name: "all", scope: "policy" })] }, {}],
  ["a cap over a key", { gates: [concurrency(1, account)] }, {}],
  ["a throttle over a key", { gates: [throttle(1, { ...account, burst: 1 })] }, {}],
  ["a budget", { gates: [], budget: 1 }, {}],
  ["the claim", { gates: [], batchSize: 1 }, { claim: 2, perSecond: 4 }],
  ["two caps", { gates: [concurrency(1, account), concurrency(1, { name: "all", scope: "policy" })] }, {}],
] as const) {
  test(`a partition of weight 1 goes within half a minute beside a stream of new ones of weight 2 (${where})`, async (t) => {
    const seconds = await secondsUntilOld(await engine(t, options), { weight: 2, ...others });
    t.true(seconds > 9, `fair order is exact at first: ${seconds}`);
    t.true(seconds <= 25, `${seconds}`);
  });
}

test("behind a long line a tenth of the places goes by wait, and the others by weight", async (t) => {
  const world = await engine(t, { gates: [concurrency(10, { name: "all", scope: "policy" })] });
  const start = Date.now() + 60_000;
  const route = (now: Date) =>
    world.pool.query("select dispatch_policy_internal._route('p', $1, 10000)", [now]);
  await world.stage(keys(100, "single-"));
  await route(new Date(start - 1000));
  await world.stage(keys(190, "double-"), { weight: 2 });
  const singles: number[] = [];
  for (let seconds = 0; seconds < 19; seconds++) {
    const now = new Date(start + seconds * 1000);
    await world.release(await world.inFlight());
    await route(now);
    await world.admit({ now });
    const partitions = await world.admittedAt(now);
    t.is(partitions.length, 10);
    singles.push(partitions.filter((key) => key.startsWith("single-")).length);
  }
  t.deepEqual(singles.slice(0, 9), Array(9).fill(0), "fair order is exact at first");
  t.deepEqual(singles.slice(10), Array(9).fill(1));
});
