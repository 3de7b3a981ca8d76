// What an operator admits past the gates counts, and stands in nobody's way where there is room.
import test from "ava";
import { concurrency, engine, throttle, until } from "../helpers/engine.ts";

test("after a forced admission the others go as far as the cap lets them", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a", "a"]);
  await world.route();
  await world.pool.query("select dispatch_policy.admit('p', 1)");
  t.is(await world.passes(2), 2);
});

test("a forced admission that finds its jobs locked makes nobody wait for a cap with room", async (t) => {
  const world = await engine(t, { gates: [concurrency(2)] });
  const ids = await world.stage(Array(4).fill("a"));
  await world.route();
  const app = await world.session();
  await app.query("begin");
  await world.table("staged_jobs", app).lock({ id: ids.slice(0, 2) });
  await world.pool.query("select dispatch_policy.admit('p', 2, partition => 'a')");
  t.is((await world.partition("a")).blocked_on, null);
  await app.query("commit");
  // a partition whose next jobs are locked is looked at again after a moment
  let admitted = 0;
  await until("as many go as the cap lets", async () => {
    admitted += await world.passes();
    return admitted === 2;
  });
  t.is((await world.limiter("concurrency")).in_flight, 2);
});

test("a policy that is switched off charges what it lets go, and its gates count that once it is on again", async (t) => {
  const gates = [concurrency(5), throttle(5, { per: 3600, scope: "policy" })];
  const world = await engine(t, { gates, batchSize: 2 });
  const isOn = (on: boolean) => world.pool.query("select dispatch_policy.switch_policy('p', $1)", [on]);
  const left = async () => {
    const { in_flight } = await world.limiter("concurrency", "a");
    const { tokens } = await world.limiter("throttle");
    return { inFlight: in_flight, tokens: Math.round(tokens) };
  };
  await world.stage(Array(3).fill("a"));
  await isOn(false);
  t.is(await world.passes(), 2);
  t.deepEqual(await left(), { inFlight: 2, tokens: 3 });
  await isOn(true);
  t.is(await world.passes(2), 1, "what the batch left behind waits for nothing");
  await world.stage(Array(4).fill("a"));
  t.is(await world.passes(3), 2, "as many as both gates have left");
  t.deepEqual(await left(), { inFlight: 5, tokens: 0 });
  await isOn(false);
  t.is(await world.passes(2), 2, "past both");
  t.deepEqual(await left(), { inFlight: 7, tokens: 0 });
  await isOn(true);
  await world.stage("a");
  await world.table("limiters").set({ tokens: 5 }, { gate: "throttle" });
  const [first, ...others] = await world.inFlight();
  await world.finish(others.slice(0, 2));
  t.is(await world.passes(2), 0, "5 of 5");
  await world.finish([first!]);
  t.is(await world.passes(2), 1);
  t.deepEqual(await left(), { inFlight: 5, tokens: 4 });
  t.is(await world.wrongCounters(), 0);
});
