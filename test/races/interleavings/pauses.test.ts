// Pauses and holds beside ticks.
import test from "ava";
import { concurrency, engine } from "../../helpers/engine.ts";
import { failJob, fetchJob } from "../../helpers/native.ts";

const GATES = { gates: [concurrency(5, { name: "all", scope: "policy" })] };
const PAUSE_A = "select * from dispatch_policy.pause('p', partition => 'a')";
const RESUME_A = "select * from dispatch_policy.resume('p', partition => 'a')";

test("a pause that is rolled back never happened, and delays nobody else meanwhile", async (t) => {
  const world = await engine(t, GATES);
  await world.stage(["a", "b"]);
  await world.route();
  const operator = await world.session();
  await operator.query("begin");
  await operator.query(PAUSE_A);
  t.is((await world.admit()).admitted, 1, "that of b");
  await operator.query("rollback");

  t.is(await world.passes(), 1);
});

test("a pause whose transaction is open keeps no arrival from being staged or routed later", async (t) => {
  const world = await engine(t, GATES);
  await world.stage("a");
  await world.route();
  const operator = await world.session();
  await operator.query("begin");
  await operator.query(PAUSE_A);
  await world.stage("a");
  t.is(await world.route(), 0, "left for a later pass");
  await operator.query("rollback");

  t.is(await world.passes(), 2);
});

test("pausing a waiting partition that rolls back leaves it waiting, and woken like others", async (t) => {
  const world = await engine(t, { gates: [concurrency(1, { name: "all", scope: "policy" })] });
  await world.stage("holder");
  await world.passes();
  await world.stage("a");
  await world.passes();
  const operator = await world.session();
  await operator.query("begin");
  await operator.query(PAUSE_A);
  // room comes while nobody can see whether it waits
  await world.release(await world.inFlight());
  t.is(await world.passes(2), 0);
  await operator.query("rollback");

  t.is(await world.passes(2), 1);
});

test("a partition that does not exist yet can be paused, and resumed", async (t) => {
  const world = await engine(t, GATES);
  await world.pool.query(PAUSE_A);
  await world.stage(["a", "b"]);
  t.is(await world.passes(2), 1);
  t.is((await world.inFlight("b")).length, 1);

  await world.pool.query(RESUME_A);
  t.is(await world.passes(), 1);
});

test("so can one whose pause was routed before its first job came", async (t) => {
  const world = await engine(t, GATES);
  await world.pool.query(PAUSE_A);
  await world.route();
  await world.stage("a");
  t.is(await world.passes(2), 0);

  await world.pool.query(RESUME_A);
  t.is(await world.passes(), 1);
  t.is((await world.limiter("all")).in_flight, 1, "under its limits");
});

test("so can one whose first jobs are retries that move there", async (t) => {
  const gate = concurrency(1);
  const world = await engine(t, { gates: [gate] });
  await world.pool.query(PAUSE_A);
  await world.stage(["b", "c"]);
  t.is(await world.passes(), 2);
  const limits = [
    { gate: gate.name, kind: gate.kind, scope: gate.scope, position: 0, key: "a", ...gate.numbers },
  ];
  const move = { key: "a", shard: "default", context: {}, weight: 1, cost: 1, limits };
  for (const job of await world.inFlight()) {
    await fetchJob(world, job);
    await failJob(world, job, -1);
    await world.release([
      { job, ok: false, attempt: 1, retry: { attempt: 1, after: 0, task: "p", move } } as never,
    ]);
  }
  t.is(await world.passes(2), 0);

  await world.pool.query(RESUME_A);
  t.is(await world.passes(), 1, "under its limits");
});

test("a pause of a partition that does not exist, resumed before any job came, leaves nothing", async (t) => {
  const world = await engine(t, GATES);
  await world.pool.query(PAUSE_A);
  await world.pool.query(RESUME_A);
  await world.stage("a");
  t.is(await world.passes(), 1);
});

test("a pause beside the transaction that creates the partition holds", async (t) => {
  const world = await engine(t, GATES);
  await world.stage("a");
  const routing = await world.session();
  await routing.query("begin");
  await world.route(routing);
  await world.pool.query(PAUSE_A);
  await routing.query("commit");

  t.is(await world.passes(2), 0);
  await world.pool.query(RESUME_A);
  t.is(await world.passes(), 1);
});

test("a resume beside the router that is applying the pause holds", async (t) => {
  const world = await engine(t, GATES);
  await world.pool.query(PAUSE_A);
  const routing = await world.session();
  await routing.query("begin");
  await world.route(routing);
  const resuming = await world.session();
  const resume = resuming.query(RESUME_A);
  await world.waitsForLock(resuming);
  await routing.query("commit");
  await resume;

  await world.stage("a");
  t.is(await world.passes(2), 1);
});

test("a resume that began before its partition was there and the next router do not wait for each other", async (t) => {
  const world = await engine(t, GATES);
  await world.stage("a");
  const [making, beside] = [await world.session(), await world.session()];
  const [resuming, routing] = [await world.session(), await world.session()];
  await making.query("begin");
  await world.route(making);
  await world.pool.query(PAUSE_A); // makes a note: there is no partition to be seen
  await beside.query("begin");
  await world.table("arrivals", beside).lock({ pause: (its) => `${its} is not null` });
  const resume = resuming.query(RESUME_A);
  await world.waitsForLock(resuming);
  await making.query("commit");

  await routing.query("begin");
  const route = world.route(routing);
  await Promise.race([route, world.waitsForLock(routing)]);
  await beside.query("rollback");
  await Promise.all([route.then(() => routing.query("commit")), resume]);
  t.is(await world.passes(2), 1);
});

test("a hold ends by itself", async (t) => {
  const world = await engine(t, GATES);
  await world.stage("a");
  await world.route();
  await world.pool.query("select dispatch_policy.hold('p', 'a', now() + interval '1 hour')");
  t.is(await world.passes(2), 0);

  t.is((await world.admit({ now: new Date(Date.now() + 3_601_000) })).admitted, 1);
});

test("a short hold that is committed late does not end a longer one, and resume ends both", async (t) => {
  const world = await engine(t, GATES);
  const hold = "select dispatch_policy.hold('p', 'a', \"for\" => $1)";
  const heldUntil = async () =>
    (await world.pool.query("select held_until::text as until from dispatch_policy.partitions")).rows;
  const late = await world.session();
  await late.query("begin");
  await late.query(hold, ["10 seconds"]); // the partition does not exist yet: an arrival that nobody sees
  await world.pool.query(hold, ["1 hour"]);
  await world.stage("a");
  t.is(await world.route(), 2);
  const longer = await heldUntil();
  await late.query("commit");
  t.is(await world.route(), 1);
  t.deepEqual(await heldUntil(), longer);

  await world.pool.query(RESUME_A);
  t.is(await world.passes(), 1);
});

const DECLARE = `select dispatch_policy_internal._declare_policy(p.definition || '{"name": "new"}', 'hash', '{}', clock_timestamp())
  from dispatch_policy.policies p where p.policy = 'p'`;
const PAUSED = "select policy as name, paused from dispatch_policy.policies order by policy";

test("a policy that is declared while a pause of all is not committed begins paused", async (t) => {
  const world = await engine(t, { gates: [] });
  const [operator, process] = [await world.session(), await world.session()];
  await operator.query(`begin; select dispatch_policy.pause("all" => true)`);
  const declaring = process.query(DECLARE);
  await world.waitsForLock(process);
  await operator.query("commit");
  await declaring;
  t.deepEqual((await world.pool.query(PAUSED)).rows, [
    { name: "new", paused: true },
    { name: "p", paused: true },
  ]);
});

test("a pause of all waits for a policy that is being declared, and stops it", async (t) => {
  const world = await engine(t, { gates: [] });
  const [operator, process] = [await world.session(), await world.session()];
  await process.query(`begin; ${DECLARE}`);
  const pausing = operator.query(`select matched from dispatch_policy.pause("all" => true)`);
  await world.waitsForLock(operator);
  await process.query("commit");
  t.is((await pausing).rows[0].matched, 2);
  t.deepEqual((await world.pool.query(PAUSED)).rows, [
    { name: "new", paused: true },
    { name: "p", paused: true },
  ]);
});

test("a resume of all lets go of a policy that is being declared beside it", async (t) => {
  const world = await engine(t, { gates: [] });
  await world.pool.query(`select dispatch_policy.pause("all" => true)`);
  const [operator, process] = [await world.session(), await world.session()];
  await process.query(`begin; ${DECLARE}`);
  const resuming = operator.query(`select dispatch_policy.resume("all" => true)`);
  await world.waitsForLock(operator);
  await process.query("commit");
  await resuming;
  t.deepEqual((await world.pool.query(PAUSED)).rows, [
    { name: "new", paused: false },
    { name: "p", paused: false },
  ]);
});

test("under a fixed snapshot a pause of all is refused, because it would not see a policy declared meanwhile", async (t) => {
  const world = await engine(t, { gates: [] });
  const operator = await world.session();
  await operator.query("begin isolation level repeatable read");
  await t.throwsAsync(operator.query(`select dispatch_policy.pause("all" => true)`), {
    message: /pause of all policies: transaction_isolation is repeatable read, expected read committed/,
  });
});
