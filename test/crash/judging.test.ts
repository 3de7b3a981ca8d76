// Who is dead is decided by heartbeats in the database, and only by a pool whose own were unbroken.
import test from "ava";
import { concurrency, engine } from "../helpers/engine.ts";
import { fetchJob } from "../helpers/native.ts";
import { workerTable } from "../helpers/table.ts";

type World = Awaited<ReturnType<typeof engine>>;

function beat(world: World, pool: string, staleAfter = "1 minute"): Promise<unknown> {
  return world.pool.query("select dispatch_policy_internal._worker_alive($1, 1, '{p}', 'host', 1, $2, '0')", [
    pool,
    staleAfter,
  ]);
}

/** Nothing was heard of these pools for so long: what their rows say is that much older. */
function away(world: World, time: string, pools = ["judge", "other"]): Promise<unknown> {
  const earlier = (its: string) => `${its} - interval '${time}'`;
  const all = { heartbeat_at: earlier, stale_at: earlier, unbroken_since: earlier };
  return world.table("workers").set(all, { pool_id: pools });
}

/** What the judge's row says, relative to now. */
function judge(world: World, times: Readonly<Record<string, string>>): Promise<unknown> {
  const values = Object.entries(times).map(([field, time]) => [field, () => `now() + interval '${time}'`]);
  return world.table("workers").set(Object.fromEntries(values), { pool_id: "judge" });
}

async function sweep(world: World, judge = "judge"): Promise<{ pools: number; jobs: number }> {
  return (await world.pool.query("select * from dispatch_policy_internal._sweep_workers($1)", [judge]))
    .rows[0];
}

const DEAD = `select pool_id, unlocked, used_up, round(extract(epoch from now() - died_at) / 60)::int as ago
  from dispatch_policy.dead_workers`;

async function twoPools(t: Parameters<typeof engine>[0]): Promise<World> {
  const world = await engine(t, { gates: [concurrency(5)] });
  await beat(world, "judge");
  await beat(world, "other");
  return world;
}

test("after a database that was away nobody is dead: the judge was silent as well", async (t) => {
  const world = await twoPools(t);
  await away(world, "10 minutes");
  await beat(world, "judge");
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 });
  await beat(world, "other");
  await away(world, "59 seconds", ["judge"]);
  await judge(world, { heartbeat_at: "0" });
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 }, "it came back in time");
});

test("away for less than workerStaleAfter, but too long for the judge's heartbeats to count as unbroken", async (t) => {
  const world = await twoPools(t);
  await away(world, "10 minutes"); // both have lived for long
  await judge(world, { heartbeat_at: "-50 seconds", stale_at: "10 seconds" });
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 }, "its last heartbeat is too old to judge");
  await beat(world, "judge");
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 }, "the next one begins anew");
});

test("a pool that stays silent is dead once the judge's heartbeats were unbroken for as long", async (t) => {
  const world = await twoPools(t);
  await world.stage(["a", "b"]);
  await world.passes();
  const [job, theirs] = await world.inFlight();
  await fetchJob(world, job!, "other");
  await fetchJob(world, theirs!, "judge");
  const running = "select pool_id, running from dispatch_policy.workers order by 1";
  const [two] = (await world.pool.query(running)).rows;
  t.deepEqual(two, { pool_id: "judge", running: 1 });
  await away(world, "61 seconds");
  await beat(world, "judge");
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 });
  await away(world, "61 seconds", ["judge"]);
  await judge(world, { heartbeat_at: "0", stale_at: "1 minute" });
  t.deepEqual(await sweep(world), { pools: 1, jobs: 1 });
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 }, "once");
  const { rows } = await world.pool.query("select id, locked_by from graphile_worker.jobs order by id");
  t.deepEqual(rows, [
    { id: job, locked_by: null },
    { id: theirs, locked_by: "judge" },
  ]);
  t.deepEqual(await world.inFlight(), [job, theirs], "both occupy their slots");
  t.deepEqual((await world.pool.query(DEAD)).rows, [{ pool_id: "other", unlocked: 1, used_up: 0, ago: 0 }]);
});

test("a pool waits for its own workerStaleAfter, however short the judge's", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await beat(world, "judge", "3 seconds");
  await beat(world, "other", "10 minutes");
  await away(world, "11 minutes", ["other"]);
  await away(world, "9 minutes", ["judge"]);
  await judge(world, { heartbeat_at: "0", stale_at: "3 seconds" });
  t.deepEqual(await sweep(world), { pools: 0, jobs: 0 });
});

test("a late end of an unlocked attempt frees nothing, in one flush with the later one or alone", async (t) => {
  const world = await engine(t, { gates: [concurrency(5)] });
  await world.stage(["a", "a", "a"]);
  await world.passes();
  const [one, two, three] = await world.inFlight();
  await world.table("in_flight_jobs").set({ attempt: 2 });
  const ended = (job: string, attempt: number) => ({ job, attempt });
  t.deepEqual(await world.release([ended(one!, 1)]), [one], "dealt with");
  const failed = { ...ended(two!, 1), ok: false, retry: { attempt: 1, task: "p", after: 0 } };
  t.deepEqual(await world.release([failed]), [two]);
  t.deepEqual(await world.inFlight(), [one, two, three]);
  t.is((await world.limiter("concurrency")).in_flight, 3);
  await world.release([ended(one!, 1), ended(one!, 2), ended(two!, 2)]);
  t.deepEqual(await world.inFlight(), [three]);
  await world.release([three!]);
  t.is(
    (await world.limiter("concurrency")).in_flight,
    0,
    "who names no attempt means whichever occupies the slot",
  );
});

test("a pool that was buried, goes on, fetches a job and dies before its next heartbeat leaves none locked", async (t) => {
  const world = await twoPools(t);
  await away(world, "10 minutes", ["other"]);
  await away(world, "0", ["judge"]);
  await judge(world, { unbroken_since: "-1 hour" });
  t.like(await sweep(world), { pools: 1, jobs: 0 });
  t.like(await sweep(world), { pools: 0, jobs: 0 }, "once");
  t.like((await world.pool.query(DEAD)).rows[0], { unlocked: 0, used_up: 0 });
  await world.stage("a");
  await world.passes();
  const [job] = await world.inFlight();
  await fetchJob(world, job!, "other");
  await workerTable(world.pool).set({ max_attempts: 1 }, { id: job! });
  t.like(await sweep(world), { pools: 1, jobs: 1 });
  t.like(await sweep(world), { pools: 0, jobs: 0 });
  t.like((await world.pool.query(DEAD)).rows[0], { unlocked: 0, used_up: 1 });
  await beat(world, "other");
  t.deepEqual((await world.pool.query(DEAD)).rows, [], "it lives");
  t.is(await world.number("select count(*)::int from graphile_worker.jobs where locked_at is not null"), 0);
});

test("a fetch that was on its way when its pool ended leaves no job locked", async (t) => {
  const world = await twoPools(t);
  await judge(world, { unbroken_since: "-1 hour" });
  await world.stage("a");
  await world.passes();
  const [job] = await world.inFlight();
  const fetching = await world.session();
  await fetching.query("begin");
  await fetchJob(world, job!, "other", fetching);
  await world.pool.query("select dispatch_policy_internal._worker_ended('other')");
  t.deepEqual((await world.pool.query("select pool_id from dispatch_policy.workers")).rows, [
    { pool_id: "judge" },
  ]);
  t.like(await sweep(world), { pools: 0, jobs: 0 }, "it has not come through");
  await fetching.query("commit");
  const { rows } = await world.pool.query(
    "select busy from dispatch_policy_internal._beat('judge', 1, '{p}', 'host', 1, '1 minute', '{p}', null, '1 minute', true)",
  );
  t.true(rows[0].busy, "there is something to sweep");
  t.like(await sweep(world), { pools: 1, jobs: 1 });
  t.is(await world.number("select count(*)::int from graphile_worker.jobs where locked_at is not null"), 0);

  await away(world, "11 minutes", ["other"]);
  const elevenMinutesAgo = () => "now() - interval '11 minutes'";
  await world.table("workers").set({ buried_at: elevenMinutesAgo }, { ended: true });
  await sweep(world);
  t.is(await world.table("workers").count(), 1, "its row is not kept");
});
