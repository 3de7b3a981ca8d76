// Verbs that end jobs lock staged rows before Graphile Worker's. A job may be parked after a verb has looked for its staged row.
import test from "ava";
import { concurrency, type Engine, engine, until } from "../../helpers/engine.ts";
import { holdCalls } from "../../helpers/held-calls.ts";
import { admissionOf, failJob, fetchJob } from "../../helpers/native.ts";

const FIVE = { gates: [concurrency(5)] };

/** Its run fails, and it is due again after a minute. */
async function fail(it: Engine, job: string, admission: string | null | undefined): Promise<void> {
  await failJob(it, job);
  const retry = { attempt: 1, task: "p", after: 60, maxAttempts: 25 };
  await it.release([{ job, ok: false, attempt: 1, admission, retry } as never]);
}

for (const [verb, other] of [
  ["complete_jobs", "permanently_fail_jobs"],
  ["permanently_fail_jobs", "complete_jobs"],
] as const) {
  test(`${verb} beside ${other}, of a job that is parked meanwhile, do not deadlock`, async (t) => {
    const it = await engine(t, FIVE);
    await it.stage("a");
    await it.passes();
    const [job] = (await it.inFlight("a")) as [string];
    await fetchJob(it, job);
    const admission = await admissionOf(it, job);
    const [staged] = await it.stage("b", { runAt: new Date(Date.now() + 3_600_000) });
    const { rows } = await it.pool.query("select id from graphile_worker.add_job('plain', '{}')");
    const native = rows[0].id;

    const calls = await holdCalls(it.pool, verb, "insert on dispatch_policy_internal.arrivals");
    const first = await it.session();
    await first.query("set enable_seqscan = off; set enable_bitmapscan = off"); // by id: the parked job before the native one
    const ending = first.query(`select from dispatch_policy.${verb}($1)`, [[staged, job, native]]);
    await calls.isHeld(); // it has looked at staged rows, and found b's
    await fail(it, job, admission);
    t.is(await it.staged("a"), 1, "it is parked");

    const app = await it.session();
    await app.query("begin");
    await app.query("select from graphile_worker.reschedule_jobs($1, priority => 1)", [[native]]);
    await calls.goOn();
    await it.waitsForLock(first); // it has ended the parked job in Graphile Worker
    const second = await it.session();
    const endingToo = second.query(`select from dispatch_policy.${other}($1)`, [[job]]);
    await it.waitsForLock(second); // it has locked the staged row
    await app.query("commit");
    await Promise.all([ending, endingToo]);

    t.is(await it.staged(), 0);
    t.is((await it.inFlight()).length, 0);
    t.is(await it.wrongCounters(), 0);
    await until("nothing is left to route", async () => (await it.passes()) === 0);
  });
}

test("remove_job beside complete_jobs, of a parked job, do not deadlock", async (t) => {
  const it = await engine(t, FIVE);
  await it.stage("a", { jobKey: "k" });
  await it.passes();
  const [job] = (await it.inFlight("a")) as [string];
  await fetchJob(it, job);
  await fail(it, job, await admissionOf(it, job));

  const calls = await holdCalls(it.pool, "complete_jobs", "insert on dispatch_policy_internal.arrivals");
  const first = await it.session();
  const completing = first.query("select from dispatch_policy.complete_jobs($1)", [[job]]);
  await calls.isHeld(); // it has locked the staged row
  const second = await it.session();
  const removing = second.query("select from dispatch_policy.remove_job('k')");
  await it.waitsForLock(second);
  await calls.goOn();
  await Promise.all([completing, removing]);
  t.is(await it.staged(), 0);
  t.is(await it.wrongCounters(), 0);
});
