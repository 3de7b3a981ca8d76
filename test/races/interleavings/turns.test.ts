// Turns: releases that pass their slots on, and passes that route few arrivals, beside what others change at that moment.
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, type Session } from "../../helpers/engine.ts";

/** Jobs of these partitions run at a cap over all, and those of others wait for it. */
async function full(t: ExecutionContext, running: string[], waiting: string[]): Promise<Engine> {
  const world = await engine(t, {
    gates: [concurrency(running.length, { name: "all", scope: "policy" })],
    ahead: 100,
  });
  await world.waitsLong();
  for (const key of [...running, ...waiting]) {
    await world.stage(key);
    await world.passes();
  }
  return world;
}

const run = async (world: Engine) =>
  (await world.pool.query("select partition from dispatch_policy.in_flight_jobs order by job_id")).rows.map(
    ({ partition }) => partition,
  );

/** The job of a partition ends, and its slot goes on. */
async function end(world: Engine, partition: string, as?: Session): Promise<string[]> {
  const jobs = await world.inFlight(partition);
  await world.pool.query("select graphile_worker.complete_jobs($1)", [jobs]);
  return world.release(jobs, as, { passesOn: true });
}

/** Ends a job while somebody has the limiters locked, until `meanwhile` is done. */
async function endsLate(world: Engine, partition: string, meanwhile: () => Promise<unknown>): Promise<void> {
  const locker = await world.session();
  await locker.query("begin");
  await world.table("limiters", locker).lock();
  const releasing = await world.session();
  const release = end(world, partition, releasing);
  await world.waitsForLock(releasing);
  await meanwhile();
  await locker.query("rollback");
  await release;
}

test("of two releases at one cap the second waits, and each passes on its own slot", async (t) => {
  const world = await full(t, ["a", "b"], ["c", "d", "e"]);
  const [one, other] = [await world.session(), await world.session()];
  await one.query("begin");
  await end(world, "a", one);
  const second = end(world, "b", other);
  await world.waitsForLock(other);
  await one.query("commit");
  await second;
  t.deepEqual(await run(world), ["c", "d"]);
  t.is((await world.limiter("all")).in_flight, 2);
});

test("a slot goes by the limit that was set while its release waited", async (t) => {
  const world = await full(t, ["a"], ["b"]);
  await endsLate(world, "a", () =>
    world.pool.query(`select * from dispatch_policy.set_limit('p', 'all', '{"max": 0}')`),
  );
  t.deepEqual(await run(world), []);
  t.is(await world.passes(2), 0);
  await world.pool.query("select * from dispatch_policy.clear_limit('p', 'all')");
  t.is(await world.passes(2), 1);
});

test("and by the old one while the new one is not committed", async (t) => {
  const world = await full(t, ["a"], ["b"]);
  const operator = await world.session();
  await operator.query("begin");
  await operator.query(`select * from dispatch_policy.set_limit('p', 'all', '{"max": 0}')`);
  await end(world, "a");
  t.deepEqual(await run(world), ["b"]);
  await operator.query("commit");
});

const HOLD_B = `select dispatch_policy.hold('p', 'b', "for" => '1 hour')`;

test("a partition that is held while the release waits gets no slot, and the next one does", async (t) => {
  const world = await full(t, ["a"], ["b", "c"]);
  await endsLate(world, "a", () => world.pool.query(HOLD_B));
  t.deepEqual(await run(world), ["c"]);
});

test("a hold that is not committed keeps its partition out, and none else", async (t) => {
  const world = await full(t, ["a"], ["b", "c"]);
  const operator = await world.session();
  await operator.query("begin");
  await operator.query(HOLD_B);
  await end(world, "a");
  t.deepEqual(await run(world), ["c"]);
  await operator.query("rollback");
  await end(world, "c");
  t.is(await world.passes(2), await world.staged());
  t.deepEqual(await run(world), ["b"], "it was passed by once, because nobody could see whether it may go");
});

test("a policy that is paused while the release waits passes nothing on", async (t) => {
  const world = await full(t, ["a"], ["b"]);
  await endsLate(world, "a", () => world.pool.query("select * from dispatch_policy.pause('p')"));
  t.deepEqual(await run(world), []);
  await world.pool.query("select * from dispatch_policy.resume('p')");
  t.is(await world.passes(2), 1);
});

test("a removal beside a release that passes its slot on is refused: the next job is in flight", async (t) => {
  const world = await full(t, ["a"], ["b"]);
  const releasing = await world.session();
  await releasing.query("begin");
  await end(world, "a", releasing);
  const remove = () => world.pool.query("select * from dispatch_policy.remove_policy('p')");
  await t.throwsAsync(remove());
  await releasing.query("commit");
  await t.throwsAsync(remove(), { message: /in flight/ });
  t.deepEqual(await run(world), ["b"]);
});

test("a backend that is killed after it has passed the slot on leaves it as it was", async (t) => {
  const world = await full(t, ["a"], ["b"]);
  const releasing = await world.session();
  await releasing.query("begin");
  await end(world, "a", releasing);
  await world.pool.query("select pg_terminate_backend($1)", [releasing.pid]);
  await t.throwsAsync(releasing.query("commit"));
  t.deepEqual(await run(world), ["a"]);
  await end(world, "a");
  t.deepEqual(await run(world), ["b"]);
});

/** A partition that is known, and a job of it that nobody has routed yet. */
async function arrived(t: ExecutionContext): Promise<Engine> {
  const world = await full(t, ["a", "z"], []);
  await end(world, "z");
  await world.passes();
  await world.stage("a");
  return world;
}

test("a pass routes one job of a partition that is known, and admits it", async (t) => {
  const world = await arrived(t);
  t.like(await world.admit({ routes: true }), { routed: 1, admitted: 1 });
  t.like(await world.admit({ routes: true }), { routed: 0, admitted: 0 });
});

test("beside a router it leaves the job, and says so", async (t) => {
  const world = await arrived(t);
  const routing = await world.session();
  await routing.query("begin");
  await world.route(routing);
  t.like(await world.admit({ routes: true }), { routed: -1, admitted: 0 });
  await routing.query("rollback");
  t.like(await world.admit({ routes: true }), { routed: 1, admitted: 1 });
});

test("what it routes is left to the router if the partition is new or locked, or has other limits", async (t) => {
  const world = await arrived(t);
  const app = await world.session();
  await app.query("begin");
  await world.table("partitions", app).lock({ key: "a" });
  t.like(await world.admit({ routes: true }), { routed: null, claimed: 0 });
  await app.query("rollback");

  await world.stage("new");
  t.like(await world.admit({ routes: true }), { routed: null, claimed: 0 });
  await world.passes();
  await world.stage("a", { gates: [concurrency(9, { name: "all", scope: "policy" })] });
  t.like(await world.admit({ routes: true }), { routed: null, claimed: 0 });
  await world.passes();
  await world.stage("new");
  t.like(await world.admit({ routes: true }), { routed: null }, "its limits are those that a has changed");
  t.is(await world.passes(2), 0, "both caps are full, by the older numbers again");
});
