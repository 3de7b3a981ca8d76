// What others do while an operator moves a partition's jobs.
import test from "ava";
import { concurrency, type Engine, engine, type Session } from "../../helpers/engine.ts";

const GATES = { gates: [concurrency(1)] };

const move = async (as: Pick<Session, "query">, rest = "") =>
  (await as.query(`select * from dispatch_policy.move('p', 'a', to_partition => 'b'${rest})`)).rows[0];

/** Moves and passes wait for locks for as long as a test takes. */
const waits = (it: Engine) => it.pool.query("alter function dispatch_policy.move set lock_timeout = 0");

/** Two partitions that jobs have had, with these jobs in a. */
async function world(t: Parameters<typeof engine>[0], jobs: readonly object[]) {
  const it = await engine(t, GATES);
  await it.stage(["a", "b"]);
  await it.passes();
  await it.finish(await it.inFlight());
  for (const options of jobs) await it.stage("a", options);
  await it.route();
  await waits(it);
  return it;
}

test("beside a pass that has chosen a job: that job goes, charged where it was chosen; the others move", async (t) => {
  const it = await world(t, [{}, {}, {}]);
  const [ticker, mover] = [await it.session(), await it.session()];
  await ticker.query("begin");
  t.is((await it.admit({ as: ticker })).admitted, 1);
  const moving = move(mover);
  await it.waitsForLock(mover);
  await ticker.query("commit");
  t.deepEqual(await moving, { matched: 2, changed: 2 });
  t.is((await it.inFlight("a")).length, 1);
  t.is(await it.staged("b"), 2);
  t.is(await it.passes(2), 1);
  t.is((await it.inFlight("b")).length, 1);
  t.is(await it.wrongCounters(), 0);
});

test("a pass that begins while a move is not committed takes nothing of the partition, and others go on", async (t) => {
  const it = await world(t, [{}, {}]);
  await it.stage(["b", "c"]);
  await it.route();
  const mover = await it.session();
  await mover.query("begin");
  t.deepEqual(await move(mover), { matched: 2, changed: 2 });
  t.is((await it.admit({})).admitted, 2, "of b and of c");
  t.is((await it.inFlight("a")).length, 0);
  await mover.query("commit");
  t.is(await it.passes(2), 0, "b is full");
  t.is(await it.wrongCounters(), 0);
  t.is(await it.drain(), 4);
  t.deepEqual(
    Object.values(await it.leftovers()).filter((n) => n > 0),
    [],
  );
});

test("a partition that a router makes, and a pass claims, before either has committed: the move waits for both", async (t) => {
  const it = await engine(t, GATES);
  await it.waitsLong();
  await it.stage("b");
  await it.passes();
  await it.stage(["a", "a"]);
  await waits(it);
  const [ticker, mover] = [await it.session(), await it.session()];
  await ticker.query("begin");
  await it.route(ticker);
  const moving = move(mover);
  await it.waitsForLock(mover);
  t.is((await it.admit({ as: ticker })).admitted, 1);
  await ticker.query("commit");
  t.deepEqual(await moving, { matched: 1, changed: 1 });
  t.deepEqual([(await it.inFlight("a")).length, await it.staged("a"), await it.staged("b")], [1, 0, 1]);
  await it.route();
  t.is(await it.wrongCounters(), 0);
});

test("a partition that is not routed when it moves stays so until the move is committed", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("b");
  await it.passes();
  await it.stage(["a", "a"]);
  const mover = await it.session();
  await mover.query("begin");
  t.deepEqual(await move(mover), { matched: 2, changed: 2 });
  t.is(await it.route(), -1);
  await mover.query("commit");
  await it.route();
  t.is(await it.wrongCounters(), 0);
  t.is(await it.staged("b"), 2);
});

test("a job that a producer commits meanwhile stays in the old partition, and the next call finds it", async (t) => {
  const it = await world(t, [{}]);
  const producer = await it.session();
  await producer.query("begin");
  await it.stage("a", { as: producer });
  t.deepEqual(await move(it.pool), { matched: 1, changed: 1 });
  await producer.query("commit");
  t.is(await it.staged("a"), 1);
  t.deepEqual(await move(it.pool), { matched: 1, changed: 1 });
  await it.route();
  t.deepEqual([await it.staged("a"), await it.staged("b")], [0, 2]);
  t.is(await it.wrongCounters(), 0);
});

test("a job of a key that a producer replaces while it moves goes where the producer says, once", async (t) => {
  const it = await world(t, [{ jobKey: "k" }, {}]);
  const [mover, producer] = [await it.session(), await it.session()];
  await mover.query("begin");
  t.deepEqual(await move(mover), { matched: 2, changed: 2 });
  const staging = it.stage("a", { as: producer, jobKey: "k" });
  await it.waitsForLock(producer);
  await mover.query("commit");
  await staging;
  await it.route();
  t.deepEqual([await it.staged("a"), await it.staged("b")], [1, 1]);
  t.is(await it.wrongCounters(), 0);
});

test("a job of a key that a producer is replacing is left alone", async (t) => {
  const it = await world(t, [{ jobKey: "k" }, {}]);
  const producer = await it.session();
  await producer.query("begin");
  await it.stage("c", { as: producer, jobKey: "k" });
  t.deepEqual(await move(it.pool), { matched: 1, changed: 1 });
  await producer.query("commit");
  await it.route();
  t.deepEqual([await it.staged("a"), await it.staged("b"), await it.staged("c")], [0, 1, 1]);
  t.is(await it.wrongCounters(), 0);
});

test("a job whose key a process is working out stays with it, and moves with the next call", async (t) => {
  const it = await world(t, []);
  await it.pool.query("select dispatch_policy.add_job('p', '{}', partition_key => 'a')");
  const keying = await it.session();
  await keying.query("begin");
  const { rows } = await keying.query("select * from dispatch_policy_internal._keyless_jobs('p', 0, 10)");
  t.deepEqual(await move(it.pool), { matched: 0, changed: 0 });
  const partition = { key: rows[0].partition_key, shard: "default", context: {}, weight: 1 };
  await keying.query("select dispatch_policy_internal._key_jobs('p', 0, $1)", [
    JSON.stringify([{ id: rows[0].staged_id, cost: 1, partition }]),
  ]);
  await keying.query("commit");
  t.is(await it.staged("a"), 1);
  t.deepEqual(await move(it.pool), { matched: 1, changed: 1 });
  await it.route();
  t.is(await it.wrongCounters(), 0);
});

test("two moves of one partition share its jobs, and each job moves once", async (t) => {
  const it = await world(t, [{}, {}, {}]);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  t.deepEqual(await move(first, ", count => 2"), { matched: 2, changed: 2 });
  const other = move(second);
  await it.waitsForLock(second);
  await first.query("commit");
  t.deepEqual(await other, { matched: 1, changed: 1 });
  await it.route();
  t.is(await it.staged("b"), 3);
  t.is(await it.wrongCounters(), 0);
});

test("a move that waits for a pass for too long gives way, and has changed nothing", async (t) => {
  const it = await world(t, [{}, {}]);
  await it.pool.query("alter function dispatch_policy.move set lock_timeout = '50ms'");
  const ticker = await it.session();
  await ticker.query("begin");
  await it.admit({ as: ticker });
  await t.throwsAsync(move(it.pool), { code: "55P03" });
  await ticker.query("rollback");
  t.is(await it.staged("a"), 2);
});
