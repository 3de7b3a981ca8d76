// The ahead bound rises without a release: when a worker pool comes, comes back, or gets more slots.
import test from "ava";
import { type Engine, engine, type Queryable, until } from "../../helpers/engine.ts";
import { inside } from "../../helpers/inside.ts";
import { fetchJob } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

/** Two jobs wait for workers, of which there are none. */
async function nobodyWorks(t: Parameters<typeof engine>[0]): Promise<Engine> {
  const it = await engine(t, { gates: [], ahead: 0 });
  await it.stage(["a", "b"]);
  t.is(await it.passes(2), 0);
  t.is((await it.partition("a")).denied_reason, "ahead_full");
  return it;
}

/** Graphile Worker fetches the jobs that are in flight; they end and are released, and it has not recorded that yet. */
async function endUnrecorded(it: Engine): Promise<string[]> {
  const jobs = await it.inFlight();
  for (const job of jobs) await fetchJob(it, job, "w");
  const finished = jobs.map((job) => ({ job, ok: true, attempt: 1, ends: true }));
  return it.release(finished);
}

async function record(it: Engine, jobs: readonly string[]): Promise<void> {
  await workerTable(it.pool).remove({ id: jobs });
}

const queued = (it: Engine) => it.number("select count(*)::int from graphile_worker.jobs");

async function heartbeat(it: Engine, { slots = 1, staleAfter = "1 hour", as = it.pool as Queryable } = {}) {
  const text = "select dispatch_policy_internal._worker_alive('pool', $1, $2, 'host', 1, $3, '0')";
  await as.query(text, [slots, [it.policy], staleAfter]);
}

/** What a leader's heartbeat asks: is there something to tick for? */
async function waits(it: Engine): Promise<boolean> {
  const text = "select waiting from dispatch_policy_internal._lease('leader', $1, null, '1 hour', true)";
  return (await it.pool.query(text, [[it.policy]])).rows[0].waiting;
}

test("a pool that comes lets those go who wait for it, and the leader is told by its own heartbeat", async (t) => {
  const it = await nobodyWorks(t);
  t.is(await waits(it), false);
  await heartbeat(it);
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
  t.is(await waits(it), false, "there is one slot");

  await heartbeat(it, { slots: 2 });
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
});

test("a pool that comes while a tick decides without it is not overlooked", async (t) => {
  const it = await engine(t, { gates: [], ahead: 0 });
  await it.stage("a");
  await it.route();
  const ticking = await it.session();
  await ticking.query("begin");
  t.is((await it.admit({ as: ticking })).admitted, 0);
  await heartbeat(it);
  await it.route();
  t.is((await it.partition("a")).blocked_on, null, "the tick has not said yet that it waits");

  await ticking.query("commit");
  t.not((await it.partition("a")).blocked_on, null);
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
});

test("a heartbeat waits for no tick, and no sweep calls it a repair what the next pass does", async (t) => {
  const it = await nobodyWorks(t);
  const ticking = await it.session();
  await ticking.query("begin");
  await it.table("limiters", ticking).lock({}, "no key update");
  const beating = await it.session();
  await beating.query("set lock_timeout = '5s'"); // the tick keeps its locks for longer
  await heartbeat(it, { as: beating });
  await ticking.query("rollback");

  const { rows } = await it.pool.query(
    "select * from dispatch_policy_internal._sweep_partitions(clock_timestamp())",
  );
  t.deepEqual(rows, [{ woken: 0, unblocked: 0 }]);
  t.is(await it.passes(), 1);
});

test("loops are told of slots that are new, and of no others", async (t) => {
  const it = await nobodyWorks(t);
  const listening = await it.session();
  const told: unknown[] = [];
  listening.on("notification", ({ payload }) => told.push(JSON.parse(payload ?? "").policy));
  await listening.query("listen dispatch_policy");
  await heartbeat(it, { slots: 0 });
  await heartbeat(it);
  await heartbeat(it);
  await heartbeat(it, { staleAfter: "1 millisecond" });
  const silent = "select not bool_or(alive) as is from dispatch_policy.workers";
  await until("it is silent", async () => (await it.pool.query(silent)).rows[0].is);
  await heartbeat(it);
  await heartbeat(it, { slots: 2 });
  await heartbeat(it);
  await it.pool.query("select pg_notify('dispatch_policy', $1)", [JSON.stringify({ policy: "last" })]);
  await until("all notes have come", async () => told.at(-1) === "last");
  t.deepEqual(told, [...Array(3).fill(it.policy), "last"], "new, back, more");
});

test("a pass that keeps to the bound waits for the one before, and ranks all that are eligible then", async (t) => {
  const it = await engine(t, { gates: [], ahead: 6 });
  await it.stage(Array(8).fill("cold"), { runAt: new Date(Date.now() - 60_000) });
  await it.stage(Array(8).fill("hot"));
  await it.route();
  await it.table("partitions").set({ decayed_admits: 100, fair_key: 1e9 }, { key: "hot" });
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  t.is((await it.admit({ as: first, claim: 1 })).admitted, 6);
  const beside = it.admit({ as: second });
  await it.waitsForLock(second);
  await first.query("rollback");
  t.is((await beside).admitted, 6);
  t.is((await it.inFlight("cold")).length, 6);
});

test("a job that was released before Graphile Worker recorded its end counts until it has", async (t) => {
  const it = await engine(t, { gates: [], ahead: 3 });
  await heartbeat(it);
  await it.stage("a");
  t.is(await it.passes(), 1);
  await it.stage(Array(10).fill("b"));
  const ended = await endUnrecorded(it);
  t.is(ended.length, 1);
  t.is(await it.passes(2), 3);
  t.is(await queued(it), 4, "a slot, and three ahead");
  t.is((await it.partition("b")).denied_reason, "ahead_full");

  await record(it, ended);
  t.is(await until("the next pass is due", () => it.passes()), 1);
  t.is(await queued(it), 4);
  t.deepEqual((await it.limiter("ahead")).ending, ended, "nothing was released since");
  await it.finish((await it.inFlight()).slice(0, 1));
  t.deepEqual((await it.limiter("ahead")).ending, []);
});

test("who waits for an end to be recorded is looked at soon, also when a release has said there is room", async (t) => {
  const it = await engine(t, { gates: [], ahead: 0 });
  await heartbeat(it);
  await it.stage(["a", "b"]);
  t.is(await it.passes(2), 1);
  const ended = await endUnrecorded(it);
  const notes = () => it.table("freed").count();
  t.is(await notes(), 1);

  const admitting = await it.session();
  await admitting.query("begin");
  await it.table("limiters", admitting).lock({}, "no key update");
  await it.admit();
  t.is(await notes(), 1, "its time cannot be set meanwhile: the note stays");
  await admitting.query("rollback");

  await it.admit();
  t.is(await notes(), 0);
  t.not((await it.limiter("ahead")).wake_at, null);
  t.is(await waits(it), false);
  await record(it, ended);
  t.is(await waits(it), true);
  t.is(await it.passes(), 1);
});

test("an explicit tick calls those who wait for the ahead bound until none does, and leaves its times alone", async (t) => {
  const it = await engine(t, { gates: [], ahead: 0 });
  await heartbeat(it);
  await it.stage(["a", "b", "c", "d"]);
  t.is(await it.passes(2), 1);
  await it.table("limiters").set({ wake_at: "infinity" }, { gate: "ahead" });
  for (const left of [2, 1, 0]) {
    const { admitted, next_eligible_at } = await it.admit({ bounded: false, claim: 1 });
    t.is(admitted, 1);
    t.is(next_eligible_at instanceof Date, left > 0, `${left} are left`);
  }
  t.is((await it.limiter("ahead")).wake_at, Number.POSITIVE_INFINITY);
});

test("a job whose end nobody will record holds no place once it is unlocked, nor beside its own next run", async (t) => {
  const it = await engine(t, { gates: [], ahead: 1 });
  await heartbeat(it);
  await it.stage("a");
  await it.passes();
  const ended = await endUnrecorded(it);
  const stillEnding = async (jobs: readonly string[]) =>
    (await inside(it.pool, "select dispatch_policy_internal._still_ending($1) as jobs", [jobs]))[0].jobs;
  t.deepEqual(await stillEnding(ended), ended);
  await it.pool.query("select graphile_worker.force_unlock_workers('{w}')");
  t.deepEqual(await stillEnding(ended), []);

  await it.stage(Array(3).fill("b"));
  t.is(await it.passes(), 2);
  await workerTable(it.pool).set({ locked_at: () => "now()", locked_by: "w" });
  t.deepEqual(await stillEnding(await it.inFlight()), []);
});
