// The command uninstall, killed in the middle as often as it takes: each job is in Graphile Worker once, as it was.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import test, { type ExecutionContext } from "ava";
import { concurrency, type Engine, engine, until } from "../helpers/engine.ts";
import { failJob, fetchJob } from "../helpers/native.ts";

const MAIN = fileURLToPath(new URL("../../src/cli/main.ts", import.meta.url));
const PARKED = 40;
const WAITING = 2500;

/** The command in a process of its own. */
function command(t: ExecutionContext, it: Engine) {
  const env = { ...process.env, DATABASE_URL: it.url, PGAPPNAME: "uninstaller" };
  const child = spawn(process.execPath, [MAIN, "uninstall", "--yes"], {
    env,
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => void child.kill("SIGKILL"));
  let said = "";
  child.stdout.on("data", (data) => {
    said += data;
  });
  child.stderr.on("data", (data) => {
    said += data;
  });
  const ended = once(child, "close") as Promise<[number | null]>; // at its exit not all that it said is read
  return {
    kill: () => child.kill("SIGKILL"),
    ended,
    isOver: () => child.exitCode !== null,
    said: () => said,
  };
}

/** Failed jobs that wait for their retry, jobs for later, in queues and with keys, and jobs in flight. */
async function backlog(it: Engine): Promise<void> {
  await it.stage(Array.from({ length: PARKED }, (_, n) => `failed${n}`));
  await it.passes();
  const rows = await it.table("in_flight_jobs").all();
  for (const { job_id } of rows) {
    await fetchJob(it, job_id);
    await failJob(it, job_id);
  }
  const retry = { attempt: 1, task: "p", after: 3600, maxAttempts: 25 };
  await it.release(
    rows.map(({ job_id: job, admission }) => ({ job, ok: false, attempt: 1, admission, retry })) as never,
  );
  await it.stage(Array(3).fill("b"));
  await it.passes();
  const keys = Array.from({ length: 50 }, (_, n) => `k${n}`);
  for (const jobKey of keys) await it.stage("a", { jobKey, queueName: "q", priority: 3 });
  await it.stage(Array(WAITING).fill("a"), { runAt: new Date(Date.now() + 86_400_000) });
}

const counts = async (it: Engine) =>
  (
    await it.pool.query(`select count(*)::int as jobs, (count(*) filter (where run_at = 'infinity'))::int as stopped,
      (count(*) filter (where attempts = 1 and last_error = 'oops' and run_at > now() + interval '30 minutes'
        and run_at < now() + interval '2 hours'))::int as retries,
      (count(*) filter (where run_at > now() + interval '12 hours'))::int as later,
      (count(distinct key) filter (where queue_name = 'q' and priority = 3))::int as keyed
      from graphile_worker.jobs`)
  ).rows[0];

const ALL = { jobs: PARKED + 3 + 50 + WAITING, stopped: 0, retries: PARKED, later: WAITING, keyed: 50 };

test("killed each time it has made a step, it goes on where it was: nothing is lost, and nothing comes twice", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await backlog(it);
  // each step lasts long enough to be killed before the last one, also where this test looks seldom
  await it.table("staged_jobs").after("delete", "perform pg_sleep(0.25)", "statement");
  let kills = 0;
  for (let left = await it.staged(); left > 0; ) {
    const uninstall = command(t, it);
    await until(
      "a step is done",
      async () => uninstall.isOver() || (await it.staged().catch(() => 0)) < left,
    );
    uninstall.kill();
    await uninstall.ended;
    kills++;
    left = await it.staged().catch(() => 0); // it may have been through
  }
  t.log(`${kills} kills`);
  t.true(kills > 1);
  const last = command(t, it);
  t.deepEqual((await last.ended)[0], 0, last.said());
  t.deepEqual(await counts(it), ALL);
  t.is(await it.number("select to_regnamespace('dispatch_policy') is null"), true as never);
});

test("killed while another session's jobs keep it from the end, it loses nothing", async (t) => {
  const it = await engine(t, { gates: [concurrency(1)] });
  await backlog(it);
  const other = await it.session();
  await other.query("begin");
  const last = (await it.table("staged_jobs").all({}, "id")).slice(-7).map(({ id }) => id);
  await it.table("staged_jobs", other).lock({ id: last });
  const uninstall = command(t, it);
  await until("all others are unstaged", async () => (await it.staged()) === 7);
  uninstall.kill();
  await uninstall.ended;
  // PostgreSQL goes on with the statement under way, and commits it if it gets its locks
  await until("its session has ended", async () => {
    const left = await it.number(
      `select count(*)::int from pg_stat_activity
       where datname = current_database() and application_name = 'uninstaller'`,
    );
    return left === 0;
  });
  t.like(await counts(it), { jobs: ALL.jobs - 7, stopped: 0 });
  await other.query("commit");
  const again = command(t, it);
  t.is((await again.ended)[0], 0, again.said());
  t.regex(again.said(), /Unstaged 7 waiting jobs, of which 0 had failed before\./);
  t.deepEqual(await counts(it), ALL);
});
