// Releases that settle what jobs cost, beside passes, routers and other releases that use the same throttle.
import test from "ava";
import { type Engine, engine, type Queryable, throttle } from "../../helpers/engine.ts";
import { failJob, fetchJob } from "../../helpers/native.ts";

const HOUR = { per: 3600 };
const OWN = { gates: [throttle(10, HOUR)] };

/** What the bucket had when somebody last wrote it. Within a second it gains less than a hundredth. */
async function tokens(it: Engine, key?: string): Promise<number> {
  return Math.round((await it.limiter("throttle", key)).tokens * 10) / 10;
}

/** One job in flight has paid 5 of 10 tokens. */
async function withOneInFlight(it: Engine): Promise<string> {
  await it.waitsLong();
  await it.stage("a", { cost: 5 });
  await it.passes();
  return (await it.inFlight())[0]!;
}

for (const [cost, goes, left] of [
  [8, 0, 2],
  [1, 1, 4],
] as const)
  test(`a pass waits for a release that settles 5 as ${cost}, and goes by what is left then`, async (t) => {
    const it = await engine(t, OWN);
    const job = await withOneInFlight(it);
    await it.stage("a", { cost: 5 });
    await it.route();
    const [releasing, passing] = [await it.session(), await it.session()];
    await releasing.query("begin");
    await it.release([{ job, settled: { cost } }], releasing);
    const pass = it.admit({ as: passing });
    await it.waitsForLock(passing);
    await releasing.query("commit");
    t.is((await pass).admitted, goes);
    t.is(await tokens(it), left);
  });

test("a release waits for a pass, and settles on top of what that has taken", async (t) => {
  const it = await engine(t, OWN);
  const job = await withOneInFlight(it);
  await it.stage("a", { cost: 3 });
  await it.route();
  const [passing, releasing] = [await it.session(), await it.session()];
  await passing.query("begin");
  t.is((await it.admit({ as: passing })).admitted, 1);
  const release = it.release([{ job, settled: { cost: 1 } }], releasing);
  await it.waitsForLock(releasing);
  await passing.query("commit");
  t.deepEqual(await release, [job]);
  t.is(await tokens(it), 10 - 1 - 3);
});

test("two releases of one job settle it once", async (t) => {
  const it = await engine(t, OWN);
  const job = await withOneInFlight(it);
  const [first, second] = [await it.session(), await it.session()];
  await first.query("begin");
  await it.release([{ job, settled: { cost: 7 } }], first);
  const again = it.release([{ job, settled: { cost: 7 } }], second);
  await it.waitsForLock(second);
  await first.query("commit");
  t.deepEqual(await again, [job], "dealt with");
  t.is(await tokens(it), 3);
});

test("a job that is settled, and left because its failure is not recorded yet, is settled once", async (t) => {
  const it = await engine(t, OWN);
  const job = await withOneInFlight(it);
  await fetchJob(it, job);
  const retry = { attempt: 1, task: "p", after: 60, priority: 0, maxAttempts: 25 };
  const end = { job, ok: false, attempt: 1, settled: { cost: 7 }, retry };
  t.deepEqual(await it.release([end]), [], "left: Graphile Worker still has it locked");
  t.is(await tokens(it), 3);
  await failJob(it, job, 0);
  t.deepEqual(await it.release([end]), [job]);
  t.is(await tokens(it), 3);
  t.deepEqual(await it.inFlight(), []);
});

const LOCKS: Record<string, (it: Engine, as: Queryable, job: string) => Promise<unknown>> = {
  throttle: (_, as) => as.query("select dispatch_policy.take('p', 'throttle', 'a', 0)"),
  "in-flight row": (it, as, job) => it.table("in_flight_jobs", as).lock({ job_id: job }),
};

for (const [what, lock] of Object.entries(LOCKS))
  test(`a release leaves a job whose ${what} another transaction has locked, and settles it with the next`, async (t) => {
    const it = await engine(t, OWN);
    await it.stage(["a", "b"], { cost: 5 });
    await it.passes();
    const [[job], [other]] = [await it.inFlight("a"), await it.inFlight("b")];
    const app = await it.session();
    await app.query("begin");
    await lock(it, app, job!);
    const ends = [job!, other!].map((one) => ({ job: one, settled: { cost: 7 } }));
    t.deepEqual(await it.release(ends), [other]);
    t.is(await tokens(it, "b"), 3);
    await app.query("rollback");
    t.is(await tokens(it, "a"), 5);
    t.deepEqual(await it.release([ends[0]!]), [job]);
    t.is(await tokens(it, "a"), 3);
  });

test("a release that waits for a throttle unlocks the other limiters before a pass goes on without them", async (t) => {
  const it = await engine(t, OWN);
  await it.stage("a", { cost: 5 });
  await it.passes();
  const [job] = await it.inFlight();
  await it.stage("b");
  await it.route();
  const [app, releasing, passing] = [await it.session(), await it.session(), await it.session()];
  await app.query("begin");
  await app.query("select dispatch_policy.take('p', 'throttle', 'a', 0)");
  const release = it.release([{ job: job!, settled: { cost: 8 } }], releasing);
  await it.waitsForLock(releasing);
  t.is((await it.admit({ as: passing })).admitted, 1);
  t.deepEqual(await release, []);
});

test("a partition that gets another throttle while its release waits: the next release settles it there", async (t) => {
  const account = (key: string) => ({ gates: [throttle(10, { ...HOUR, scope: () => key })] });
  const it = await engine(t, account("old"));
  await it.waitsLong();
  await it.stage("a", { cost: 5 });
  await it.passes();
  const [job] = await it.inFlight();
  const [app, releasing] = [await it.session(), await it.session()];
  await app.query("begin");
  await app.query("select dispatch_policy.take('p', 'throttle', 'old', 0)");
  const release = it.release([{ job: job!, settled: { cost: 7 } }], releasing);
  await it.waitsForLock(releasing);
  await it.relimit("a", account("new").gates);
  await it.route();
  await app.query("commit");
  t.deepEqual(await release, [], "it has not locked the throttle that the partition has now");
  t.deepEqual(await it.release([{ job: job!, settled: { cost: 7 } }]), [job]);
  t.is(await tokens(it, "old"), 5, "the estimate stays where it was paid");
  t.is(await tokens(it, "new"), 8);
});
