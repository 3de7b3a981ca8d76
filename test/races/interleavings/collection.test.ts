// Sweeps remove limiters that no partition uses, beside routing, which gives them to partitions.
import test from "ava";
import { concurrency, type Engine, engine } from "../../helpers/engine.ts";
import { nameOf } from "../../helpers/table.ts";

const ROUNDS = 60;
const OPTIONS = {
  gates: [concurrency(1, { name: "host", scope: (partition: string) => partition.slice(0, 1) })],
};
const COLLECT = "select dispatch_policy_internal._collect_limiters(clock_timestamp(), '1 day') as n";

/** Partitions that name a limiter that is not there would wait for it for ever. */
function dangling(it: Engine): Promise<number> {
  return it.table("partitions").count({
    limiter_ids: (its) => `not ${its} <@ array(select id from ${nameOf("limiters")})`,
  });
}

/** A limiter of host a, which no partition uses. */
async function unused(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, OPTIONS);
  await it.stage("a1");
  await it.route();
  await it.stage("a1");
  await it.relimit("a1", []);
  await it.route();
  return it;
}

test("a limiter stays that routing is giving to a partition", async (t) => {
  const it = await unused(t);
  const routing = await it.session();
  await routing.query("begin");
  await it.stage("a2");
  t.is(await it.route(routing), 1);
  t.is(await it.number(COLLECT), 0);
  await routing.query("commit");
  t.is(await it.number(COLLECT), 0);
  t.is(await dangling(it), 0);
  t.is((await it.admit()).admitted, 3);
});

test("routing comes back for a partition whose limiter is being removed, and makes it anew", async (t) => {
  const it = await unused(t);
  const before = await it.limiter("host");
  const sweeping = await it.session();
  await sweeping.query("begin");
  t.is((await sweeping.query(COLLECT)).rows[0].n, 1);
  await it.stage("a2");
  t.is(await it.route(), -1);
  await sweeping.query("commit");
  t.is(await it.route(), 1);
  t.not((await it.limiter("host")).id, before.id);
  t.is(await dangling(it), 0);
  t.is((await it.admit()).admitted, 3);
});

test("a limiter stays that routing gave to a partition after the sweep looked for unused ones", async (t) => {
  const it = await unused(t);
  const [sweeping, pausing] = [await it.session(), await it.session()];
  await pausing.query("select pg_advisory_lock(7)");
  // the same look at a limiter, that waits in the middle
  await it.pool.query(`create or replace function dispatch_policy_internal._is_unused(
      limiter ${nameOf("limiters")}, p_now timestamptz, p_inactive_after interval, p_overridden boolean
    ) returns boolean language plpgsql volatile as $$
    begin
      perform pg_advisory_xact_lock_shared(7);
      return limiter.in_flight = 0;
    end $$`);
  const swept = sweeping.query(COLLECT);
  await it.waitsForLock(sweeping);
  await it.stage("a2");
  t.is(await it.route(), 1);
  await pausing.query("select pg_advisory_unlock(7)");
  t.is((await swept).rows[0].n, 0);
  t.is(await dangling(it), 0);
});

test("sweeps and routing at once leave no partition without its limiters", async (t) => {
  const it = await engine(t, OPTIONS);
  let collected = 0;
  for (let round = 0; round < ROUNDS; round++) {
    await it.stage("a1");
    await it.route();
    await it.stage("a1", { gates: [] });
    await it.route();
    await it.stage(`a${round + 2}`);
    const [limiters] = await Promise.all([it.number(COLLECT), it.route(), it.route()]);
    collected += limiters;
    await it.route();
    t.is(await dangling(it), 0);
    await it.stage(`a${round + 2}`, { gates: [] });
    await it.route();
  }
  t.log(`${collected} of ${ROUNDS} collected`);
});
