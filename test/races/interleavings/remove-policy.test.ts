// What others do while a policy is removed.
import test from "ava";
import { Logger } from "graphile-worker";
import { runTickLoop } from "../../../src/index.ts";
import { concurrency, type Engine, engine, type Session, until } from "../../helpers/engine.ts";
import { asText } from "../../helpers/table.ts";

const GATES = { gates: [concurrency(1)] };
/** Declares policy q as policy p is, with the same task if `takes`. */
const declareQ = (it: Engine, takes: boolean) =>
  it.pool.query(
    "select dispatch_policy_internal._declare_policy(definition || $1, 'q', '{}', now()) from dispatch_policy.policies",
    [JSON.stringify({ name: "q", tasks: takes ? ["p"] : ["q"] })],
  );

const remove = async (as: Pick<Session, "query">, into: string | null = null) =>
  (await as.query(`select * from dispatch_policy.remove_policy('p', "into" => $1)`, [into])).rows[0];

const names = async (it: Engine) =>
  (await it.pool.query("select policy from dispatch_policy.policies order by 1")).rows.map(
    ({ policy }) => policy,
  );

test("a job that a producer has staged, and not committed, stays under the old name, and a later call finds it", async (t) => {
  const it = await engine(t, GATES);
  const producer = await it.session();
  await producer.query("begin");
  await it.stage("a", { as: producer });
  t.like(await remove(it.pool), { matched: 0, removed: true });
  await producer.query("commit");
  t.deepEqual(await names(it), []);
  t.is(await it.staged(), 1);
  await t.throwsAsync(remove(it.pool), { code: "DPUSE", message: /1 jobs wait for policy 'p'/ });
});

test("a job that a producer commits between the last look and the end stays too", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a");
  await it.passes();
  await it.finish(await it.inFlight());
  const producer = await it.session();
  const remover = await it.session();
  await producer.query("begin");
  await it.table("limiters", producer).lock();
  await it.pool.query("alter function dispatch_policy.remove_policy set lock_timeout = 0");
  const removing = remove(remover);
  await it.waitsForLock(remover);
  await it.stage("a", { as: producer });
  await producer.query("commit");
  await t.throwsAsync(removing, { code: "55P03", message: /was added or admitted meanwhile/ });
  await remover.query("select"); // it has rolled back
  t.deepEqual(await names(it), ["p"]);
  t.is(await it.passes(2), 1);
});

test("jobs that a pass has admitted, and not committed, stay; then they are in flight, and the policy stays", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "b"]);
  await it.route();
  await declareQ(it, true);
  const ticker = await it.session();
  await ticker.query("begin");
  t.is((await it.admit({ as: ticker })).admitted, 2);
  await t.throwsAsync(remove(it.pool, "q"), { code: "55P03" });
  await ticker.query("commit");
  await t.throwsAsync(remove(it.pool, "q"), { code: "DPUSE", message: /2 jobs of policy 'p' are in flight/ });
  t.deepEqual(await names(it), ["p", "q"]);
});

test("a job that is staged after the last look keeps the policy, and a pass that has its partition gives way", async (t) => {
  const it = await engine(t, GATES);
  await it.stage("a");
  await it.route();
  await it.pool.query("alter function dispatch_policy.remove_policy set lock_timeout = 0");
  const producer = await it.session();
  const remover = await it.session();
  const job = await it.table("staged_jobs", asText(it.pool)).one();
  await it.table("staged_jobs").remove();
  await producer.query("begin");
  await it.table("partitions", producer).lock({}, "no key update");
  const removing = remove(remover);
  await it.waitsForLock(remover);
  await it.table("staged_jobs", producer).add(job);
  t.is((await it.admit({ as: producer })).admitted, 0);
  await producer.query("commit");
  await t.throwsAsync(removing, { code: "55P03" });
  await remover.query("select"); // it has rolled back
  t.deepEqual(await names(it), ["p"]);
  t.is(await it.passes(2), 1);
});

test("a process that declares the policy meanwhile waits, and has it anew", async (t) => {
  const it = await engine(t, GATES);
  const declaring = await it.table("policies").one();
  const remover = await it.session();
  const declarer = await it.session();
  await remover.query("begin");
  t.like(await remove(remover), { removed: true });
  const declared = declarer.query(
    "select in_force from dispatch_policy_internal._declare_policy($1, $2, '{}', clock_timestamp())",
    [JSON.stringify(declaring.definition), declaring.definition_hash],
  );
  await it.waitsForLock(declarer);
  await remover.query("commit");
  t.true((await declared).rows[0].in_force);
  t.deepEqual(await names(it), ["p"]);
  await it.stage("a");
  t.is(await it.passes(), 1);
});

test("who ticks every policy goes on when one of them is removed", async (t) => {
  const it = await engine(t, GATES);
  await declareQ(it, false);
  const lines: string[] = [];
  const logger = new Logger(() => (level, message) => void lines.push(`${level} ${message}`));
  const stop = new AbortController();
  const looping = runTickLoop({ pgPool: it.pool, policies: [], logger, signal: stop.signal } as never);
  await until("both are ticked", async () => {
    const { rows } = await it.pool.query(
      "select from pg_stat_activity where query = 'listen dispatch_policy' and datname = current_database()",
    );
    return rows.length > 0;
  });
  // a first pass may take longer than it waits for a lock
  await it.pool.query("alter function dispatch_policy.remove_policy set lock_timeout = 0");
  t.like(await remove(it.pool), { removed: true });
  await it.pool.query("select dispatch_policy_internal._notify('p')");
  await until("its loop has ended", () =>
    lines.some((line) => /Policy "p" was removed: its loop ends/.test(line)),
  );
  stop.abort();
  await looping;
  t.deepEqual(
    lines.filter((line) => !line.startsWith("debug") && !line.startsWith("info")),
    [],
  );
});

test("jobs move only after a pass that has not committed, because the new policy would let as many go beside its own", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "a"]);
  await it.route();
  await declareQ(it, true);
  const [ticker, remover] = [await it.session(), await it.session()];
  await ticker.query("begin");
  t.is((await it.admit({ as: ticker })).admitted, 1);
  await it.pool.query("alter function dispatch_policy.remove_policy set lock_timeout = 0");
  const removing = t.throwsAsync(remove(remover, "q"), { code: "DPUSE", message: /1 jobs .* are in flight/ });
  await it.waitsForLock(remover);
  await ticker.query("commit");
  await removing;
  t.is(await it.staged("a"), 1, "none moved");
});

test("between its steps nobody admits jobs of the policy, not even a pass that had begun", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "b", "c"]);
  await it.route();
  await declareQ(it, true);
  const [remover, ticker, holder] = [await it.session(), await it.session(), await it.session()];
  await it.waitsLong();
  // the pass has read the policy, and waits for the limiters
  await holder.query("begin");
  await it.table("limiters", holder).lock();
  const pass = it.admit({ as: ticker });
  await it.waitsForLock(ticker);
  await it.pool.query("alter function dispatch_policy.remove_policy set lock_timeout = 0");
  const step = remover.query(`select * from dispatch_policy.remove_policy('p', "into" => 'q', count => 1)`);
  await it.waitsForLock(remover);
  await holder.query("commit");
  const { admitted } = await pass;
  const moved = await step.then(
    ({ rows }) => rows[0].changed,
    () => 0,
  );
  t.not(admitted > 0, moved > 0, "one of them had its way");
  await it.passes(2);
  t.is((await it.inFlight()).length, admitted, "and nobody admits more");
});

test("a policy that is being removed is paused, and says why", async (t) => {
  const it = await engine(t, GATES);
  await it.stage(["a", "b"]);
  await declareQ(it, true);
  await it.pool.query(`select * from dispatch_policy.remove_policy('p', "into" => 'q', count => 1)`);
  t.is(await it.passes(2), 0);
  const { rows } = await it.pool.query(
    "select paused, pause_reason from dispatch_policy.policies where policy = 'p'",
  );
  t.deepEqual(rows, [{ paused: true, pause_reason: "it is being removed" }]);
});
