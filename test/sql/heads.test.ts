// A partition that waits for tokens waits for as many as its next job costs, which may become another job.
import test, { type ExecutionContext } from "ava";
import { type Engine, engine, type Queryable, type TestGate, throttle } from "../helpers/engine.ts";
import { inside } from "../helpers/inside.ts";
import { asText, table } from "../helpers/table.ts";

const HOUR_MS = 3_600_000;
const own = throttle(1, { per: 3600, burst: 10 });
const shared = throttle(1, { per: 3600, burst: 10, name: "all", scope: "policy" });
const BUCKETS = [
  ["its own bucket", own],
  ["a shared bucket", shared],
] as const;

interface Waiting {
  readonly world: Engine;
  /** Costs 9, of which there are 3. */
  readonly dear: string;
}

/** Of partition a, a dear job with a key waits, and a cheap one behind it. */
async function waiting(t: ExecutionContext, gate: TestGate, maxPending?: object): Promise<Waiting> {
  const world = await engine(t, { gates: [gate], ...(maxPending && { maxPending }) });
  await world.stage("a", { cost: 7 });
  t.is(await world.passes(), 1);
  const [dear] = await world.stage("a", { cost: 9, jobKey: "dear" });
  await world.stage("a", { cost: 2 });
  t.is(await world.passes(2), 0);
  t.not((await world.partition("a")).blocked_on, null);
  return { world, dear: dear! };
}

type Verb = (as: Queryable, dear: string, world: Engine) => Promise<unknown>;
const call =
  (text: string): Verb =>
  (as, dear) =>
    as.query(text, text.includes("$1") ? [dear] : []);

const VERBS: Record<string, Verb> = {
  removed: call("select dispatch_policy.remove(ids => array[$1::bigint])"),
  "removed by its key": call("select dispatch_policy.remove_job('dear')"),
  completed: call("select dispatch_policy.complete_jobs(array[$1::bigint])"),
  "failed for good": call("select dispatch_policy.permanently_fail_jobs(array[$1::bigint], 'no')"),
  postpone: call(
    "select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now() + interval '1 day')",
  ),
  "of less urgency": call("select dispatch_policy.reschedule_jobs(array[$1::bigint], priority => 10)"),
  "postpone under its key": (as, _dear, world) =>
    world.stage("a", { as, cost: 9, jobKey: "dear", runAt: new Date(Date.now() + HOUR_MS) }),
  "replaced by one of another partition": (as, _dear, world) =>
    world.stage("b", { as, cost: 100, jobKey: "dear" }),
};

for (const [bucket, gate] of BUCKETS) {
  for (const [what, verb] of Object.entries(VERBS)) {
    test(`when the job it waits with for ${bucket} is ${what}, the next one goes`, async (t) => {
      const { world, dear } = await waiting(t, gate);
      await verb(world.pool, dear, world);
      await world.passes(2);
      t.is((await world.inFlight("a")).length, 2);
    });
  }

  test(`when the job it waits with for ${bucket} is dropped as the oldest, the next one goes`, async (t) => {
    const { world } = await waiting(t, gate, {
      partition: 2,
      policy: null,
      whenFull: "drop_oldest",
      strict: false,
    });
    await world.stage("a", { cost: 100 });
    t.is(await world.staged("a"), 2);
    t.is(await world.passes(2), 1);
  });

  test(`a job under the key of the one it waits with for ${bucket} that costs less goes`, async (t) => {
    const { world } = await waiting(t, gate);
    await world.stage("a", { cost: 1, jobKey: "dear" });
    t.is(await world.passes(), 2);
  });

  test(`a more urgent job that comes due goes before the one it waits with for ${bucket}`, async (t) => {
    const { world } = await waiting(t, gate);
    const runAt = new Date(Date.now() + 60_000);
    await world.stage("a", { cost: 1, priority: -1, runAt });
    t.is(await world.passes(), 0);
    t.deepEqual((await world.partition("a")).eligible_at, runAt);
    t.is((await world.admit({ now: new Date(runAt.getTime() + 1) })).admitted, 1);
  });

  test(`a more urgent job that was staged before the one it waits with for ${bucket} goes when it is due`, async (t) => {
    const world = await engine(t, { gates: [gate] });
    await world.stage("a", { cost: 7 });
    t.is(await world.passes(), 1);
    const runAt = new Date(Date.now() + 60_000);
    await world.stage("a", { cost: 1, priority: -1, runAt });
    await world.stage("a", { cost: 9 });
    t.is(await world.passes(2), 0);
    t.deepEqual((await world.partition("a")).eligible_at, runAt);
    t.is((await world.admit({ now: new Date(runAt.getTime() + 1) })).admitted, 1);
  });

  test(`a more urgent job that comes due, of a call with one that is due, goes before the one it waits with for ${bucket}`, async (t) => {
    const { world } = await waiting(t, gate);
    const runAt = new Date(Date.now() + 60_000);
    const batch = world.batch(["a", "a"], { cost: 5 }) as { jobs: object[] };
    Object.assign(batch.jobs[1]!, { cost: 1, priority: -1, runAt });
    await world.pool.query("select dispatch_policy_internal._stage($1, 'replace')", [
      JSON.stringify([batch]),
    ]);
    t.is(await world.passes(2), 0);
    t.is((await world.admit({ now: new Date(runAt.getTime() + 1) })).admitted, 1);
  });

  test(`jobs that come due behind the one it waits with for ${bucket} are no reason to look`, async (t) => {
    const { world } = await waiting(t, gate);
    const before = (await world.partition("a")).eligible_at;
    await world.stage("a", { cost: 1, runAt: new Date(Date.now() + 60_000) });
    await world.passes(2);
    await inside(
      world.pool,
      "select dispatch_policy_internal._head_changed(array[id]) from dispatch_policy.partitions",
    );
    await world.passes(2);
    const { eligible_at: at } = await world.partition("a");
    if (gate === own) t.true(Math.abs(at - before) < 1000, `${before} ${at}`);
    else t.is(at, Number.POSITIVE_INFINITY);
  });

  test(`of many that come due, the one that goes before the one it waits with for ${bucket} is found`, async (t) => {
    const { world } = await waiting(t, gate);
    const start = Date.now() + 60_000;
    const at = (n: number) => new Date(start + n * 1000);
    for (let n = 0; n < 45; n++)
      await world.stage("a", { cost: 1, runAt: at(n), priority: n === 44 ? -1 : 0 });
    await inside(
      world.pool,
      "select dispatch_policy_internal._head_changed(array[id]) from dispatch_policy.partitions",
    );
    await world.passes(2);
    const looks: number[] = [];
    for (let n = 0; n < 46; n++) {
      const { claimed, admitted } = await world.admit({ now: new Date(at(n).getTime() + 1) });
      if (claimed > 0) looks.push(n);
      if (admitted > 0) break;
    }
    t.deepEqual(looks, [19, 39, 44]);
  });
}

for (const [what, call] of [
  ["gone", "select dispatch_policy.remove(policy => 'p', partition => 'a')"],
  ["paused", "select dispatch_policy.pause('p', partition => 'a')"],
  ["held", "select dispatch_policy.hold('p', 'a', now() + interval '1 hour')"],
] as const) {
  test(`who stood in line behind a dear job that is ${what} goes for the tokens that are there`, async (t) => {
    const { world } = await waiting(t, shared);
    await world.stage("b", { cost: 9 });
    t.is(await world.passes(2), 0);
    await world.table("staged_jobs").set({ cost: 2 });
    await world.table("partitions").set({ head_cost: 9, fair_key: -1e6 }, { key: "a" });
    await world.table("partitions").set({ head_cost: 2 }, { key: "b" });
    t.is(await world.passes(2), 0, "it is not b's turn");
    await world.pool.query(call);
    await world.passes(2);
    t.is((await world.inFlight("b")).length, 1);
  });
}

test("a job that is removed while a tick makes its partition wait with it does not hold up the next one", async (t) => {
  const world = await engine(t, { gates: [own] });
  await world.stage("a", { cost: 7 });
  t.is(await world.passes(), 1);
  const [dear] = await world.stage("a", { cost: 9 });
  await world.stage("a", { cost: 2 });
  await world.route();
  const ticking = await world.session();
  await ticking.query("begin");
  t.is((await world.admit({ as: ticking, bounded: true })).admitted, 0);
  await world.pool.query("select dispatch_policy.remove(ids => array[$1::bigint])", [dear]);
  t.is(await world.route(), 0);
  t.is(await world.table("arrivals").count(), 1, "left for the next pass");
  await ticking.query("commit");
  t.is(await world.passes(), 1);
});

test("a job that is removed while its partition is made does not hold up the next one", async (t) => {
  const world = await engine(t, { gates: [throttle(1, { per: 3600, burst: 3 })] });
  const [dear] = await world.stage(["a", "a"], { cost: 2 });
  await world.table("staged_jobs").set({ cost: 9 }, { id: dear });
  // so that the bucket is not full, and a dear job waits
  await world.route();
  await world.table("limiters").set({ tokens: 2.5 }, { gate: "throttle" });
  const { id, key, limits, due_at, head_priority, head_run_at, head_id } = await table(
    asText(world.pool),
    "partitions",
  ).one();
  await world.table("partitions").remove();
  const head = { head_priority, head_run_at, head_id };
  await world.table("arrivals").add({ policy: "p", partition_id: id, key, limits, due_at, ...head });
  const routing = await world.session();
  await routing.query("begin");
  await world.route(routing);
  const removing = await world.session();
  await removing.query("begin");
  await removing.query("select dispatch_policy.remove(ids => array[$1::bigint])", [dear]);
  await routing.query("commit");
  t.is((await world.admit()).admitted, 0);
  t.is((await world.partition("a")).head_cost, 9);
  await removing.query("commit");
  t.is(await world.passes(), 1);
});

test("the loops are told that a job was put forward", async (t) => {
  const world = await engine(t, { gates: [own] });
  const [job] = await world.stage("a", { runAt: new Date(Date.now() + HOUR_MS) });
  await world.passes();
  const session = await world.session();
  let told = 0;
  session.on("notification", () => void told++);
  await session.query("listen dispatch_policy");
  await world.pool.query("select dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => now())", [job]);
  await session.query("select");
  t.is(told, 1);
});

test("a due job that another session holds is looked at again a moment later, not at once", async (t) => {
  const world = await engine(t, { gates: [own] });
  const runAt = new Date(Date.now() + 60_000);
  await world.stage("a", { jobKey: "k", runAt });
  await world.passes();
  const application = await world.session();
  await application.query("begin");
  await world.stage("a", { as: application, jobKey: "k", runAt: new Date(runAt.getTime() + HOUR_MS) });
  const now = new Date(runAt.getTime() + 1000);
  t.like(await world.admit({ now }), { claimed: 1, admitted: 0 });
  t.deepEqual((await world.partition("a")).eligible_at, new Date(now.getTime() + 50));
  await application.query("rollback");
  t.is((await world.admit({ now: new Date(now.getTime() + 51) })).admitted, 1);
});
