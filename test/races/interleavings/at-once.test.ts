// An add whose job goes at once, beside whoever else decides.
import test, { type ExecutionContext } from "ava";
import {
  concurrency,
  type Engine,
  type EngineOptions,
  engine,
  type Session,
  throttle,
} from "../../helpers/engine.ts";
import { addPast, poolLives } from "../../helpers/native.ts";

/** A tick loop leads, a worker lives, and partitions `a` and `b` have nothing to do. */
async function atRest(t: ExecutionContext, options: Partial<EngineOptions> = {}): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(1)], ...options });
  await poolLives(it, "pool");
  await it.isLed();
  await it.stage(["a", "b"]);
  for (let running = 2; running > 0; running -= (await it.finish(await it.inFlight())).length)
    await it.passes();
  await it.route();
  return it;
}

/** Adds in a transaction that stays open. */
async function addOpen(it: Engine, partition = "a"): Promise<Session> {
  const session = await it.session();
  await session.query("begin");
  return Object.assign(session, await it.addAlone(partition, { as: session }));
}

/** Functions that `_admit_at_once` calls: before it locks, and under its locks. */
type Moment = "_is_led" | "_write_limiters";

/** Adds a job of `a`, and does something when it comes to that moment. */
async function meanwhile(it: Engine, happens: () => Promise<unknown>, moment: Moment = "_is_led") {
  await it.pool.query("create table public.gate ()");
  await it.pool.query("alter function dispatch_policy_internal._admit_at_once set lock_timeout = 0");
  const { rows } = await it.pool.query(
    `select format('alter function dispatch_policy_internal.%1$I rename to sound;
         create function dispatch_policy_internal.%1$I(%2$s) returns %3$s language sql as
         ''lock table public.gate; select dispatch_policy_internal.sound(%4$s)''',
       p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
       (select string_agg('$' || n, ', ' order by n) from generate_series(1, p.pronargs) n)) as text
     from pg_proc p where p.oid = $1::regproc`,
    [`dispatch_policy_internal.${moment}`],
  );
  await it.pool.query(rows[0].text);
  const [keeper, adder] = [await it.session(), await it.session()];
  await keeper.query("begin; lock table public.gate");
  const adding = it.addAlone("a", { as: adder });
  await it.waitsForLock(adder);
  await happens();
  await keeper.query("commit");
  return adding;
}

test("of two adds for the last slot one goes, and the other is staged without a wait", async (t) => {
  const it = await atRest(t);
  const first = await addOpen(it);
  t.like(await it.addAlone("a"), { admitted: false });
  t.like(await it.addAlone("b"), { admitted: false }, "the ahead bound is locked");
  await first.query("commit");
  t.is(await it.passes(2), 1, "that of b");
  t.is((await it.inFlight("a")).length, 1);
});

test("a pass beside an open one goes by its limiters, and one over the cap never goes", async (t) => {
  const it = await atRest(t);
  const first = await addOpen(it);
  await it.stage("a");
  t.is(await it.passes(), 0);
  await first.query("commit");
  t.is(await it.passes(2), 0);
  t.is((await it.inFlight("a")).length, 1);
  t.is((await it.limiter("concurrency", "a")).in_flight, 1);
});

test("a release waits for an open one, and both count", async (t) => {
  const it = await atRest(t, { gates: [concurrency(2)] });
  await it.waitsLong();
  await it.addAlone("a");
  const running = await it.inFlight("a");
  const first = await addOpen(it);
  const releaser = await it.session();
  const releasing = it.release(running, releaser);
  await it.waitsForLock(releaser);
  await first.query("commit");
  t.deepEqual(await releasing, running);
  t.is((await it.limiter("concurrency", "a")).in_flight, 1);
  t.is(await it.wrongCounters(), 0);
});

test("beside an open pass that took the last slot, a job is staged", async (t) => {
  const it = await atRest(t);
  await it.stage("a");
  await it.route();
  const passing = await it.session();
  await passing.query("begin");
  t.like(await it.admit({ as: passing }), { admitted: 1 });
  t.like(await it.addAlone("a"), { admitted: false });
  await passing.query("commit");
  t.is(await it.passes(2), 0);
});

test("an add that is rolled back leaves nothing", async (t) => {
  const it = await atRest(t);
  const first = await addOpen(it);
  await first.query("rollback");
  t.deepEqual(await it.leftovers(), {
    ...{ staged: 0, arrivals: 0, in_flight: 0, counters: 0 },
    ...{ reserved: 0, notes: 0, blocked: 0 },
  });
  t.like(await it.addAlone("a"), { admitted: true });
});

test("with whoever begins to wait for a shared limiter meanwhile, a pass ranks it", async (t) => {
  const it = await atRest(t, { gates: [concurrency(1, { scope: "policy" })] });
  const { admitted } = await meanwhile(it, async () => {
    await it.stage(["b", "b"]);
    await it.passes(2);
    await it.finish(await it.inFlight());
  });
  t.false(admitted);
  t.is(await it.passes(), 1);
});

test("if nothing happens meanwhile, it goes", async (t) => {
  const it = await atRest(t);
  t.like(await meanwhile(it, async () => {}), { admitted: true });
});

test("under its locks it decides alone: a pass that comes meanwhile takes nothing", async (t) => {
  const it = await atRest(t, { gates: [concurrency(1, { scope: "policy" })] });
  const passed: number[] = [];
  const passes = async () => {
    await it.stage("b");
    passed.push(await it.passes());
  };
  t.like(await meanwhile(it, passes, "_write_limiters"), { admitted: true });
  t.deepEqual(passed, [0]);
  t.is(await it.passes(2), 0);
  t.is((await it.inFlight()).length, 1);
});

test("a job of its partition that is staged meanwhile goes first", async (t) => {
  const it = await atRest(t);
  t.like(await meanwhile(it, () => it.stage("a")), { admitted: false });
});

const STOPS = {
  "a pause of the policy": "select dispatch_policy.pause(policy => 'p')",
  "a pause of the partition": "select dispatch_policy.pause(policy => 'p', partition => 'a')",
  "a hold":
    "select dispatch_policy.hold(policy => 'p', partition => 'a', until => now() + interval '1 hour')",
  "a limit": "select dispatch_policy.set_limit(policy => 'p', gate => 'concurrency', set => '{\"max\": 0}')",
  "a switch": "select dispatch_policy.switch_policy('p', false)",
};

for (const [what, text] of Object.entries(STOPS)) {
  test(`${what} meanwhile counts`, async (t) => {
    const it = await atRest(t);
    t.like(await meanwhile(it, () => it.pool.query(text)), { admitted: false });
    t.deepEqual(await it.inFlight(), []);
  });
}

test("tokens that `take` draws meanwhile are gone, and one that draws now is not waited for", async (t) => {
  const it = await atRest(t, { gates: [throttle(3, { per: 1e6, scope: "policy" })] });
  const taking = await it.session();
  await taking.query("begin");
  await taking.query("select dispatch_policy.take('p', 'throttle')");
  t.like(await it.addAlone("a"), { admitted: false });
  await taking.query("commit");
  t.is(await it.passes(2), 0);
});

test("a task that another transaction makes known to Graphile Worker is not waited for", async (t) => {
  const it = await atRest(t, { otherTasks: ["fresh"] });
  const other = await it.session();
  await other.query("begin");
  await addPast(it, { task: "fresh", as: other });
  t.like(await it.addAlone("a", { task: "fresh" }), { admitted: false });
  t.is(await it.staged("a"), 1);
  await other.query("rollback");
  t.is(await it.passes(), 1);
});

test("in a transaction that has written, a job is staged, whatever the caller says", async (t) => {
  const it = await atRest(t);
  const session = await it.session();
  await session.query("create table written ()");
  await session.query("begin; insert into written default values");
  t.like(await it.addAlone("a", { as: session }), { admitted: false });
  await session.query("commit");
  t.is(await it.passes(), 1);
});
