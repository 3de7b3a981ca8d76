// Times and waits at the edge of what PostgreSQL can hold, and beyond.
import test, { type ExecutionContext } from "ava";
import { concurrency, engine } from "../helpers/engine.ts";
import { failJob, fetchJob } from "../helpers/native.ts";
import { type Scenario, scenario, sqlPolicyOf } from "../helpers/scenario.ts";

/** Adds a job from SQL, with a run_at. */
async function add(it: Scenario, runAt: string): Promise<string> {
  const text = `select id from dispatch_policy.add_job('p', '{"key": "k"}', run_at => $1)`;
  return (await it.rows(text, [runAt]))[0].id;
}

const world = (t: ExecutionContext) => scenario(t, sqlPolicyOf("p"));

test("a job with a time before all others goes now", async (t) => {
  const it = await world(t);
  await add(it, "-infinity");
  t.is((await it.tickNow()).admitted, 1);
  const [job] = await it.rows(`select run_at between now() - interval '1 minute' and now() as is_now
    from graphile_worker.jobs`);
  t.true(job.is_now);
});

test("a job with a time after all others never goes by itself, as in Graphile Worker, and stops no other", async (t) => {
  const it = await world(t);
  const id = await add(it, "infinity");
  await add(it, "-infinity");
  const pass = await it.tickNow();
  t.is(pass.admitted, 1);
  t.is(pass.nextEligibleAt, null);
  const { repaired } = await it.utils.sweep();
  t.is(repaired.asleep, 0);
  t.is((await it.tickNow()).admitted, 0);
  t.is(await it.staged(), 1);
  for (const [runAt, admitted] of [
    ["infinity", 0],
    ["-infinity", 1],
  ] as const) {
    await it.rows("select from dispatch_policy.reschedule_jobs(array[$1::bigint], run_at => $2)", [
      id,
      runAt,
    ]);
    t.is((await it.tickNow()).admitted, admitted);
  }
});

test("several jobs of one call, with times before and after all others", async (t) => {
  const it = await world(t);
  await it.rows(`select dispatch_policy.add_jobs(array(
    select row('p', '{"key": "k"}', null, r.at, null, 'job ' || r.at, null, null)::graphile_worker.job_spec
    from unnest('{-infinity,infinity,0001-01-01,294276-12-31}'::timestamptz[]) r (at)))`);
  t.is((await it.tickNow()).admitted, 2);
  t.is(await it.staged(), 2);
});

for (const [wait, least, most] of [
  ["1e300", 2000 * 365, 3000 * 365],
  ["-5", -1, 0],
  ["NaN", 2000 * 365, 3000 * 365],
] as const) {
  test(`a failed job that is to wait for ${wait} seconds is released`, async (t) => {
    const it = await engine(t, { gates: [concurrency(1)] });
    await it.stage(["a", "b"]);
    await it.passes();
    const [job, other] = await it.inFlight();
    await fetchJob(it, job!);
    await failJob(it, job!);
    const retry = { attempt: 1, task: it.policy, after: wait };
    t.deepEqual(await it.release([{ job: job!, ok: false, retry }, other!]), [job, other]);
    t.is(await it.staged("a"), 1);
    const days = await it.number(
      "select (extract(epoch from run_at - now()) / 86400)::float8 from dispatch_policy.staged_jobs",
    );
    t.true(days > least && days <= most, `${days}`);
  });
}
