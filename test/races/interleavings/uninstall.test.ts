// What others do while waiting jobs are unstaged, and while the last step of an uninstall decides that none is left.
import test from "ava";
import { rethrowPlainly } from "../../../src/db/rethrow-plainly.ts";
import { SchemaVersionError } from "../../../src/index.ts";
import { concurrency, type Engine, engine, type Session, throttle } from "../../helpers/engine.ts";
import { addPast, admissionOf, failJob, fetchJob } from "../../helpers/native.ts";
import { workerTable } from "../../helpers/table.ts";

const SHUT = { gates: [throttle(0)] };
/** A session that waited with a plan has only the number of the table. */
const GONE = /does not exist|could not open relation with OID/;

const uninstall = async (as: Pick<Session, "query">, force = false) =>
  (await as.query("select * from dispatch_policy.uninstall($1)", [force])).rows[0];

/** A session whose uninstall has dropped the schema, and has not committed. */
async function uninstalling(it: Engine, force = false): Promise<Session> {
  const session = await it.session();
  await session.query("begin");
  if (!(await uninstall(session, force)).dropped) throw new Error("It is not dropped");
  return session;
}

const payloads = async (it: Engine) =>
  (await workerTable(it.pool).all({}, "id")).map(({ payload }) => payload.v);

/** Stages a job of key k. */
async function stage(it: Engine, v: string, as: Pick<Session, "query"> = it.pool): Promise<void> {
  const batch = it.batch(["a"], { jobKey: "k" }) as { jobs: object[] };
  const jobs = batch.jobs.map((job) => ({ ...job, payload: { v } }));
  await as.query("select id from dispatch_policy_internal._stage($1, 'replace')", [
    JSON.stringify([{ ...batch, jobs }]),
  ]);
}

/** Unstages without giving up on locks, so that a test decides when it goes on. */
async function waitsLong(it: Engine): Promise<void> {
  await it.pool.query("alter function dispatch_policy_internal._unstage_what_passes set lock_timeout = 0");
  await it.pool.query("alter function dispatch_policy.uninstall set lock_timeout = 0");
}

test("a job that a producer has staged, and not committed, keeps the schema, and is unstaged", async (t) => {
  const it = await engine(t, SHUT);
  const producer = await it.session();
  await producer.query("begin");
  await it.stage("a", { as: producer });
  await t.throwsAsync(uninstall(it.pool), { code: "55P03" });
  await producer.query("commit");
  t.like(await uninstall(it.pool), { unstaged: 1, dropped: false });
  t.like(await uninstall(it.pool), { unstaged: 0, dropped: true });
  t.is((await payloads(it)).length, 1);
});

test("a job that is staged between the last look and the lock is unstaged under the lock", async (t) => {
  const it = await engine(t, SHUT);
  await waitsLong(it);
  const producer = await it.session();
  await producer.query("begin");
  await it.stage("a", { as: producer });
  const last = await it.session();
  const dropping = uninstall(last);
  await it.waitsForLock(last);
  await producer.query("commit");
  t.like(await dropping, { unstaged: 1, dropped: true });
  t.is((await payloads(it)).length, 1);
});

for (const [how, jobs] of Object.entries({ "one job": ["a"], "several jobs": ["a", "b", "a"] })) {
  test(`a producer that stages ${how} after the last look waits, and gets an error`, async (t) => {
    const it = await engine(t, SHUT);
    await it.waitsLong();
    const last = await uninstalling(it);
    const producer = await it.session();
    const staging = it.stage(jobs, { as: producer });
    await it.waitsForLock(producer);
    await last.query("commit");
    const error = await t.throwsAsync(staging, { message: GONE });
    t.throws(() => rethrowPlainly(error, "dispatch_policy"), { instanceOf: SchemaVersionError });
    t.deepEqual(await payloads(it), []);
  });

  test(`a producer that stages ${how} after the last look is not hurt if the uninstall is killed`, async (t) => {
    const it = await engine(t, SHUT);
    await it.waitsLong();
    const last = await uninstalling(it);
    const producer = await it.session();
    const staging = it.stage(jobs, { as: producer });
    await it.waitsForLock(producer);
    await it.pool.query("select pg_terminate_backend($1)", [last.pid]);
    await staging;
    t.is(await it.staged(), jobs.length);
  });
}

test("a producer that was planned before the last step gets the same error", async (t) => {
  const it = await engine(t, SHUT);
  await it.waitsLong();
  const producer = await it.session();
  for (let n = 0; n < 8; n++) {
    await it.stage("a", { as: producer });
    await it.stage(["a", "b"], { as: producer });
  }
  while ((await uninstall(it.pool)).unstaged > 0 && (await it.staged()) > 0);
  await it.pool.query("select dispatch_policy.switch_policy('p', true)");
  const last = await uninstalling(it);
  const staging = it.stage("a", { as: producer });
  await it.waitsForLock(producer);
  await last.query("commit");
  await t.throwsAsync(staging, { message: GONE });
});

const beat = (as: Pick<Session, "query">) =>
  as.query(
    "select * from dispatch_policy_internal._beat('w', 1, '{p}', 'host', 1, '1 minute', '{p}', '{default}', '1 minute', true)",
  );

test("a worker pool that registers, and has not committed, keeps the schema", async (t) => {
  const it = await engine(t, SHUT);
  const pool = await it.session();
  await pool.query("begin");
  await beat(pool);
  await t.throwsAsync(uninstall(it.pool), { code: "55P03" });
  await pool.query("commit");
  await t.throwsAsync(uninstall(it.pool), {
    code: "DPUSE",
    message:
      /live worker pools with the preset: 1, expected none: w \(process 1 on host, heartbeat \d+ s ago, dead in \d+ s if it was killed\); stop/,
  });
  t.like(await uninstall(it.pool, true), { dropped: true });
});

test("a worker pool that registers after the last look waits, and gets an error", async (t) => {
  const it = await engine(t, SHUT);
  await it.waitsLong();
  const last = await uninstalling(it);
  const pool = await it.session();
  const registering = beat(pool);
  await it.waitsForLock(pool);
  await last.query("commit");
  await t.throwsAsync(registering, { message: GONE });
});

test("a failed job that a worker parks after the last look keeps the time of its retry", async (t) => {
  const it = await engine(t, { gates: [concurrency(9)] });
  await it.stage("a");
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  const admission = await admissionOf(it, job);
  await fetchJob(it, job);
  await failJob(it, job);
  await it.waitsLong();
  const last = await uninstalling(it, true);
  const worker = await it.session();
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  const end = { job, ok: false, attempt: 1, admission, retry } as never;
  const releasing = it.release([end], worker);
  await it.waitsForLock(worker);
  await last.query("commit");
  await t.throwsAsync(releasing, { message: GONE });
  const { rows: jobs } = await it.pool.query(
    "select run_at < 'infinity' as goes_on from graphile_worker.jobs",
  );
  t.deepEqual(jobs, [{ goes_on: true }]);
});

test("of a key, a job added past the package while the older one is unstaged counts", async (t) => {
  const it = await engine(t, SHUT);
  await it.waitsLong();
  await waitsLong(it);
  await stage(it, "old");
  const app = await it.session();
  await app.query("begin");
  await addPast(it, { key: "k", payload: { v: "new" }, as: app });
  const handing = await it.session();
  const step = uninstall(handing);
  await it.waitsForLock(handing);
  await app.query("commit");
  t.like(await step, { unstaged: 0, replaced: 0, dropped: false });
  t.like(await uninstall(it.pool), { unstaged: 0, replaced: 1 });
  t.deepEqual(await payloads(it), ["new"]);
});

test("of a key, a job that took a failed one's row while that one is unstaged keeps its time", async (t) => {
  const it = await engine(t, { gates: [concurrency(9)] });
  await it.waitsLong();
  await waitsLong(it);
  await stage(it, "old");
  await it.passes();
  const [job] = (await it.inFlight()) as [string];
  const admission = await admissionOf(it, job);
  await fetchJob(it, job);
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  await it.release([{ job, ok: false, attempt: 1, admission, retry } as never]);
  const app = await it.session();
  await app.query("begin");
  await app.query(
    "select graphile_worker.add_job('p', '{\"v\": \"new\"}', job_key => 'k', run_at => now() + interval '1 day')",
  );
  const handing = await it.session();
  const step = uninstall(handing);
  await it.waitsForLock(handing);
  await app.query("commit");
  t.like(await step, { unstaged: 0, replaced: 0 });
  t.like(await uninstall(it.pool), { unstaged: 0, replaced: 1 });
  const text = "select run_at > now() + interval '1 hour' as kept from graphile_worker.jobs";
  t.deepEqual((await it.pool.query(text)).rows, [{ kept: true }]);
  t.deepEqual(await payloads(it), ["new"]);
});

test("a job whose key an open transaction has stays for the next step, and the others go", async (t) => {
  const it = await engine(t, SHUT);
  await stage(it, "old");
  await it.stage(["a", "b", "c"]);
  await addPast(it); // nobody waits for the task
  const app = await it.session();
  await app.query("begin");
  await addPast(it, { key: "k", payload: { v: "new" }, as: app });
  t.like(await uninstall(it.pool), { unstaged: 3, refused: 0 });
  await app.query("rollback");
  t.like(await uninstall(it.pool), { unstaged: 1 });
  t.like(await uninstall(it.pool), { dropped: true });
  t.is((await payloads(it)).filter((v) => v === "old").length, 1);
});

test("two uninstalls at once unstage each job once", async (t) => {
  const it = await engine(t, SHUT);
  await it.waitsLong();
  await it.stage(Array(6).fill("a"));
  const [one, other] = [await it.session(), await it.session()];
  await one.query("begin");
  const step = "select * from dispatch_policy.uninstall(count => 3)";
  t.like((await one.query(step)).rows[0], { unstaged: 3 });
  await other.query("begin");
  const second = other.query(step);
  await it.waitsForLock(other); // the policy is being switched off
  await one.query("commit");
  t.like((await second).rows[0], { unstaged: 3 });
  await other.query("commit");
  t.is((await payloads(it)).length, 6);
});

for (const how of ["uninstall", "unstage", "unstage, and the policy goes on"] as const) {
  test(`of a key, a job that waits to be staged while the older one goes back counts: ${how}`, async (t) => {
    const it = await engine(t, SHUT);
    await it.waitsLong();
    await stage(it, "one");
    const [owner, producer] = [await it.session(), await it.session()];
    await owner.query("begin");
    if (how === "uninstall") t.is((await uninstall(owner)).unstaged, 1);
    else {
      await owner.query("select from dispatch_policy.switch_policy('p', false)");
      const { rows } = await owner.query("select * from dispatch_policy.unstage('p')");
      t.is(rows[0].changed, 1);
      if (how !== "unstage") await owner.query("select from dispatch_policy.switch_policy('p', true)");
    }
    const staged = stage(it, "two", producer);
    await it.waitsForLock(producer);
    await owner.query("commit");
    await staged;
    t.is(await it.staged(), 1);
    await it.pool.query("select from dispatch_policy.switch_policy('p', false)");
    t.like((await it.pool.query("select * from dispatch_policy.unstage('p')")).rows[0], { changed: 1 });
    t.deepEqual(await payloads(it), ["two"]);
  });
}

test("jobs whose keys an open transaction has keep no others from being unstaged", async (t) => {
  const it = await engine(t, SHUT);
  const keys = Array.from({ length: 60 }, (_, n) => `k${n}`);
  for (const jobKey of keys) await it.stage("a", { jobKey });
  await it.stage(Array(100).fill("a"));
  const app = await it.session();
  await app.query("begin");
  await app.query("select graphile_worker.add_job('other', job_key => k) from unnest($1::text[]) k", [keys]);
  await it.pool.query("select from dispatch_policy.switch_policy('p', false)");
  const { rows } = await it.pool.query("select * from dispatch_policy.unstage('p')");
  t.is(rows[0].changed, 100);
  t.is(await it.staged(), 60);
});

test("jobs that an application has locked keep no later ones from being unstaged", async (t) => {
  const it = await engine(t, SHUT);
  const ids = await it.stage(Array(30).fill("a"));
  const app = await it.session();
  await app.query("begin");
  await it.table("staged_jobs", app).lock({ id: ids.slice(0, 20) });
  await it.pool.query("select from dispatch_policy.switch_policy('p', false)");
  const { rows } = await it.pool.query("select * from dispatch_policy.unstage('p', 10)");
  t.like(rows[0], { matched: 10, changed: 10 });
});
