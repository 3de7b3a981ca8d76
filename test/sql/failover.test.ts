// What the engine does when another server answers than before: ids, passes that wait, and what pools say that they run. Another
// timeline is played by the sequence that keeps the one met last: each of these sessions meets the server anew.
import test from "ava";
import { concurrency, type Engine, engine, type Queryable } from "../helpers/engine.ts";
import { addPast, completeJob, fetchJob, startJob } from "../helpers/native.ts";
import { workerTable } from "../helpers/table.ts";

const INTERNAL = "dispatch_policy_internal";
const STEP = 10_000_000;

/** The tables are of another timeline than the server, as after a promotion. */
async function promoted(it: Engine): Promise<void> {
  await it.pool.query(`select setval('${INTERNAL}.timeline', 77)`);
  await it.table("workers").set({ server: "1:77" });
}

/** A session of the new primary. */
async function meets(it: Engine): Promise<Queryable & { admits(): Promise<boolean> }> {
  const session = await it.session();
  await session.query("set dispatch_policy.server = ''");
  await session.query(`set search_path = pg_catalog, ${INTERNAL}, pg_temp`);
  return Object.assign(session, {
    admits: async () => (await session.query(`select ${INTERNAL}._meet_server() as admits`)).rows[0].admits,
  });
}

async function beat(it: Queryable, pool: string, server: string | null): Promise<string> {
  const { rows } = await it.query(
    `select server from ${INTERNAL}._beat($1, 5, '{p}', 'host', 1, '1 minute', '{p}', null, '1 minute', false, '0', $2)`,
    [pool, server],
  );
  return rows[0].server;
}

interface Run {
  job: string;
  revision: number;
  attempt: number;
  admission: string;
  stagedId: string;
  lockedAt: Date | null;
}

async function runOf(it: Engine, job: string, pool = "a"): Promise<Run> {
  const fetched = await fetchJob(it, job, pool);
  const row = await it.table("in_flight_jobs").one({ job_id: job });
  const { revision, attempts: attempt, locked_at: lockedAt } = fetched;
  return { job, revision, attempt, admission: row.admission, stagedId: row.staged_id, lockedAt };
}

async function says(
  it: Queryable,
  runs: readonly Run[],
  { pool = "a", anew = true, gone = [] as string[], wanted = "lost" } = {},
): Promise<string[]> {
  const { rows } = await it.query(
    `select id::text, state from ${INTERNAL}._say_runs($1, ${INTERNAL}._server_now(), $2, $3, $4)`,
    [pool, JSON.stringify(runs), anew, gone],
  );
  return rows.filter(({ state }) => state === wanted).map(({ id }) => id);
}

const ids = async (it: Engine): Promise<number[]> => {
  const { rows } = await it.pool.query(
    `select pg_sequence_last_value(pg_get_serial_sequence('${INTERNAL}.staged_jobs', 'id')::regclass)::float8 as staged,
       pg_sequence_last_value(pg_get_serial_sequence('graphile_worker._private_jobs', 'id')::regclass)::float8 as jobs`,
  );
  return [rows[0].staged, rows[0].jobs];
};

async function world(t: Parameters<typeof engine>[0], max = 2): Promise<Engine> {
  const it = await engine(t, { gates: [concurrency(max)] });
  await beat(it.pool, "a", null);
  await it.stage(["k", "k", "k"]);
  await it.passes();
  return it;
}

const inFlight = async (it: Engine): Promise<number> =>
  (await it.table("limiters").one({ kind: "concurrency" })).in_flight;

test("the first session that meets another timeline moves the ids far ahead, and the others do not", async (t) => {
  const it = await world(t);
  const [staged, jobs] = (await ids(it)) as [number, number];
  await (await meets(it)).admits();
  t.deepEqual(await ids(it), [staged, jobs], "the timeline is known");
  await promoted(it);
  await (await meets(it)).admits();
  const after = await ids(it);
  t.deepEqual(after, [staged + 1 + STEP, jobs + 1 + STEP]);
  await (await meets(it)).admits();
  t.deepEqual(await ids(it), after);
});

test("ids move also if the call that meets the server is undone, and while an application's transaction stays open", async (t) => {
  const it = await world(t);
  const [staged] = (await ids(it)) as [number, number];
  await promoted(it);
  const application = await meets(it);
  await application.query("begin");
  await it.stage("k", { as: application });
  t.true((await ids(it))[0]! > staged + STEP);
  const other = await meets(it);
  await other.admits();
  await application.query("rollback");
  t.is((await ids(it))[0], staged + 2 + STEP, "once");
});

test("after a promotion nothing is admitted until each live pool has said what it runs, or five seconds have passed", async (t) => {
  const it = await world(t, 10);
  await it.stage(["k", "k"]);
  await it.route();
  await promoted(it);
  const session = await meets(it);
  const pass = async () =>
    (await session.query(`select admitted, claimed from ${INTERNAL}._admit('p', null, 10, null, false)`))
      .rows[0];
  t.deepEqual(await pass(), { admitted: 0, claimed: 0 }, "a has not said");
  await says(session, [], { anew: false });
  t.is((await pass()).admitted, 2);

  await it.stage("k");
  await promoted(it);
  const later = await meets(it);
  t.false(await later.admits());
  await it.pool.query(
    `select setval('${INTERNAL}.promoted_at', (extract(epoch from clock_timestamp()) * 1000)::bigint - 5001)`,
  );
  t.true(await later.admits());
});

test("a pool that is silent, has ended or has no slots is not waited for", async (t) => {
  const it = await world(t);
  for (const gone of [{ ended: true }, { buried_at: () => "now()" }, { slots: 0 }]) {
    await it.table("workers").set({ ended: false, buried_at: null, slots: 5 });
    await promoted(it);
    await it.table("workers").set(gone);
    t.true(await (await meets(it)).admits(), JSON.stringify(gone));
  }
});

test("a heartbeat to a server of an earlier timeline than the pool has seen is refused", async (t) => {
  const it = await world(t);
  const own = await beat(it.pool, "a", null);
  t.is(await beat(it.pool, "a", own), own);
  const [system, timeline] = own.split(":") as [string, string];
  const error = await t.throwsAsync(beat(it.pool, "a", `${system}:${Number(timeline) + 1}`));
  t.is((error as { code?: string }).code, "DPOLD");
  t.regex(error!.message, /^dispatch_policy: this server is on timeline 1, expected 2 or later/);
  t.is(
    await beat(it.pool, "a", `1${system}:77`),
    own,
    "of another cluster it cannot be told, as after an upgrade",
  );
});

test("what a pool runs keeps its slot, and a run without one is told", async (t) => {
  const it = await world(t);
  const [first, second] = (await it.inFlight()) as [string, string];
  const kept = await runOf(it, first);
  const lost = await runOf(it, second);
  // the promotion has lost the second one's admission
  await it.table("in_flight_jobs").remove({ job_id: second });
  await it.table("limiters").set({ in_flight: 1 }, { kind: "concurrency" });
  await workerTable(it.pool).remove({ id: second });
  t.deepEqual(await says(it.pool, [kept, lost]), [second]);
  t.like(await it.table("in_flight_jobs").one({ job_id: first }), { pool_id: "a", attempt: 1 });

  await it.pool.query(`select ${INTERNAL}._occupy_run('a', $1, $2, $3, $4, $5, $6)`, [
    ...[second, lost.revision, lost.attempt, lost.admission, lost.stagedId],
    JSON.stringify(it.batch(["k"])),
  ]);
  t.is(await inFlight(it), 2);
  await it.release([{ job: second, admission: lost.admission, attempt: lost.attempt }]);
  t.is(await inFlight(it), 1, "its end frees it");
});

test("a pool that is late keeps nothing: its job was unlocked, and runs elsewhere or has ended there", async (t) => {
  const it = await world(t);
  const [first, second] = (await it.inFlight()) as [string, string];
  const elsewhere = await runOf(it, first, "a");
  const ended = await runOf(it, second, "a");
  await workerTable(it.pool).set({ locked_by: null, locked_at: null });
  const again = await runOf(it, first, "b");
  await says(it.pool, [again], { pool: "b", anew: false });
  await completeJob(it, second);
  await it.table("in_flight_jobs").remove({ job_id: second });
  t.deepEqual(await says(it.pool, [elsewhere, ended], { anew: false }), [], "nothing is to be occupied");
  t.like(await it.table("in_flight_jobs").one({ job_id: first }), { pool_id: "b", attempt: 2 });
});

/** The next primary has not heard of a fetch. */
const forgetFetch = (it: Engine, id: string) =>
  workerTable(it.pool).set({ locked_by: null, locked_at: null, attempts: 0 }, { id });

const postponed = async (it: Engine, id: string) =>
  (
    await it.pool.query(
      `select run_at = to_timestamp(s.last_value / 1000.0) + interval '6 seconds' as postponed
       from graphile_worker.jobs, ${INTERNAL}.promoted_at s where id = $1`,
      [id],
    )
  ).rows[0].postponed;

test("a run whose fetch the promotion has lost is kept from being fetched, and lent once its pool has said it", async (t) => {
  const it = await world(t);
  const [first, second] = (await it.inFlight()) as [string, string];
  const run = await runOf(it, first);
  await forgetFetch(it, first);
  await promoted(it);
  await beat(await meets(it), "b", null);
  t.true(await postponed(it, first));
  t.true(await postponed(it, second), "nobody runs it, and nobody has said so");
  t.deepEqual(await says(await meets(it), [run]), []);
  t.deepEqual(await rowOf(it, first), { locked_by: null, attempts: 1, ahead: true });
  t.true(await postponed(it, second));
  await says(await meets(it), [run], { anew: false });
  t.false(await postponed(it, second), "all pools have said");
  t.deepEqual(await rowOf(it, first), { locked_by: null, attempts: 1, ahead: true });
  t.like(await it.table("in_flight_jobs").one({ job_id: first }), { pool_id: "a", attempt: 1 });
});

test("a run whose row others have by now is told, and keeps nothing", async (t) => {
  const it = await world(t);
  const [first] = (await it.inFlight()) as [string];
  const run = await runOf(it, first);
  await forgetFetch(it, first);
  await runOf(it, first, "b");
  t.deepEqual(await says(it.pool, [run], { wanted: "elsewhere" }), [first]);
  t.is((await it.table("in_flight_jobs").one({ job_id: first })).pool_id, null);
});

for (const [which, added] of [
  ["with a key: its next job may get the row", { job_key: "k" }],
  ["of a queue: the next one may run beside", { queue_name: "q" }],
] as const)
  test(`so is one ${which}`, async (t) => {
    const it = await engine(t, { gates: [concurrency(2)] });
    await beat(it.pool, "a", null);
    await it.stage("k");
    await it.table("staged_jobs").set(added);
    await it.passes();
    const [first] = (await it.inFlight()) as [string];
    const run = await runOf(it, first);
    await forgetFetch(it, first);
    t.deepEqual(await says(it.pool, [run], { wanted: "elsewhere" }), [first]);
    t.false((await rowOf(it, first)).ahead);
  });

test("a failure of a lent run is retried by its policy, also if its fetch was lost", async (t) => {
  const it = await world(t, 5);
  const [first] = (await it.inFlight()) as [string];
  const run = await runOf(it, first);
  await forgetFetch(it, first);
  await says(it.pool, [run]);
  const retry = { attempt: 1, revision: 0, after: 5, task: it.policy, priority: 0, maxAttempts: 25 };
  t.deepEqual(await it.release([{ job: first, ok: false, admission: run.admission, attempt: 1, retry }]), [
    first,
  ]);
  t.is(await it.table("staged_jobs").count({ parked_job_id: first }), 1);
});

test("passes wait until what was lost has its slots again", async (t) => {
  const it = await world(t);
  await promoted(it);
  const session = await meets(it);
  await says(session, []);
  t.false(await session.admits(), "some may have no slot yet");
  await says(session, [], { anew: false });
  t.true(await session.admits());
});

test("what ends while it gets its slots again keeps none", async (t) => {
  const it = await world(t);
  const [first] = (await it.inFlight()) as [string];
  const run = await runOf(it, first);
  await it.table("in_flight_jobs").remove({ job_id: first });
  await it.table("limiters").set({ in_flight: 1 }, { kind: "concurrency" });
  await workerTable(it.pool).remove({ id: first });
  t.deepEqual(await says(it.pool, [run]), [first]);
  await it.pool.query(`select ${INTERNAL}._occupy_run('a', $1, $2, $3, $4, $5, $6)`, [
    ...[first, run.revision, run.attempt, run.admission, run.stagedId],
    JSON.stringify(it.batch(["k"])),
  ]);
  await says(it.pool, [], { anew: false, gone: [first] });
  t.is((await it.table("in_flight_jobs").one({ job_id: first })).pool_id, null, "a sweep finds it");
});

test("a slot whose job was lent, and has gone with the last commit that the standby has, is left to a sweep", async (t) => {
  const it = await world(t, 5);
  const [lost, runs] = (await it.inFlight()) as [string, string];
  await locked(it, lost);
  await runOf(it, runs);
  await givesUp(it, { running: [runs] });
  await completeJob(it, runs);
  await says(it.pool, []);
  t.is((await it.table("in_flight_jobs").one({ job_id: runs })).pool_id, null);
});

test("an occupied run keeps its slot after a silence, though it has no row", async (t) => {
  const it = await world(t);
  const [first] = (await it.inFlight()) as [string];
  const run = await runOf(it, first);
  await says(it.pool, [run]);
  await workerTable(it.pool).remove({ id: first });
  await it.table("in_flight_jobs").set({ started_at: (its) => `${its} - interval '11 seconds'` });
  await says(it.pool, [run], { anew: false });
  t.is((await it.table("in_flight_jobs").one({ job_id: first })).pool_id, "a");
});

test("a job that was added past its policy waits for the pools as well: it is staged", async (t) => {
  const it = await world(t, 5);
  const past = await addPast(it, { task: it.policy });
  const fetched = await fetchJob(it, past, "a");
  await promoted(it);
  const start = { partition: "k", poolId: "a", as: await meets(it) };
  t.is((await startJob(it, fetched, start)).verdict, "copied");
});

test("a slot that a pool has and says nothing of is left to the next sweep", async (t) => {
  const it = await world(t);
  const [first] = (await it.inFlight()) as [string];
  const run = await runOf(it, first);
  await says(it.pool, [run]);
  await completeJob(it, first);
  t.is(await inFlight(it), 2, "the pool lives, so it may run");
  await says(it.pool, []);
  t.is(
    (await it.table("in_flight_jobs").one({ job_id: first })).pool_id,
    "a",
    "it may have started just now",
  );
  await it.table("in_flight_jobs").set({ started_at: (its) => `${its} - interval '11 seconds'` });
  await says(it.pool, []);
  t.is((await it.table("in_flight_jobs").one({ job_id: first })).pool_id, null);
});

interface Given {
  unlocked: number;
  completed: number;
  lent: string[];
  is_left: boolean;
}

interface Had {
  running?: string[];
  fetched?: string[];
  recording?: string[];
  lost?: string[];
  ended?: { job: string; revision: number }[];
}

async function givesUp(
  it: Engine,
  { running = [], fetched = [], recording = [], lost = [], ended = [] }: Had,
): Promise<Given> {
  const { rows } = await it.pool.query(
    `select unlocked, completed, lent::text[] as lent, is_left
     from ${INTERNAL}._give_up_locks('a', $1, $2, $3, $4, $5, '10 seconds')`,
    [running, fetched, recording, lost, JSON.stringify(ended)],
  );
  return rows[0];
}

const NOTHING: Given = { unlocked: 0, completed: 0, lent: [], is_left: false };

/** A pool has locked these jobs for a while. */
async function locked(it: Engine, ...jobs: string[]): Promise<void> {
  for (const job of jobs) await runOf(it, job);
  await workerTable(it.pool).set({ locked_at: (its) => `${its} - interval '11 seconds'` }, { id: jobs });
}

const rowOf = async (it: Engine, id: string) =>
  (
    await it.pool.query(
      `select locked_by, attempts, run_at > now() + interval '50 seconds' as ahead from graphile_worker.jobs where id = $1`,
      [id],
    )
  ).rows[0];

test("what a pool has locked for long and does not have is unlocked, and what it runs is lent", async (t) => {
  const it = await world(t, 5);
  const [lost, runs] = (await it.inFlight()) as [string, string];
  await runOf(it, lost);
  await runOf(it, runs);
  t.deepEqual(await givesUp(it, { running: [runs] }), NOTHING, "its answer may be under way");
  await workerTable(it.pool).set(
    { locked_at: (its) => `${its} - interval '11 seconds'` },
    { id: [lost, runs] },
  );
  t.deepEqual(
    await givesUp(it, { running: [runs], fetched: [lost] }),
    NOTHING,
    "it waits in the local queue",
  );
  t.deepEqual(await givesUp(it, { running: [runs] }), { ...NOTHING, unlocked: 1, lent: [runs] });
  t.deepEqual(await rowOf(it, lost), { locked_by: null, attempts: 1, ahead: false });
  t.deepEqual(await rowOf(it, runs), { locked_by: null, attempts: 1, ahead: true });
  t.is(
    (await it.table("in_flight_jobs").one({ job_id: lost })).attempt,
    2,
    "a late end of the first frees nothing",
  );
});

test("what has just ended well is lent as well: it would run again. Once nobody can be recording that, it is completed", async (t) => {
  const it = await world(t, 5);
  const [lost, ended] = (await it.inFlight()) as [string, string];
  await locked(it, lost);
  await runOf(it, ended);
  const said = { ended: [{ job: ended, revision: 0 }] };
  t.deepEqual(await givesUp(it, { ...said, fetched: [ended] }), { ...NOTHING, unlocked: 1, lent: [ended] });
  t.deepEqual(await rowOf(it, ended), { locked_by: null, attempts: 1, ahead: true });
  t.deepEqual(await says(it.pool, [], { anew: false }), []);
  t.deepEqual(await givesUp(it, { ...said, fetched: [ended] }), NOTHING);
  t.deepEqual(await givesUp(it, said), { ...NOTHING, completed: 1 });
  t.is(await workerTable(it.pool).count({ id: ended }), 0);
  t.is(await inFlight(it), 2, "of three");
});

test("a job that was lent, and whose end a promotion has lost, waits for its gates again", async (t) => {
  const it = await world(t, 5);
  const [lost, runs, other] = (await it.inFlight()) as [string, string, string];
  await locked(it, lost);
  for (const job of [runs, other]) await runOf(it, job);
  t.deepEqual((await givesUp(it, { running: [runs, other] })).lent.sort(), [runs, other].sort());
  t.deepEqual(await givesUp(it, { running: [other], lost: [runs] }), { ...NOTHING, unlocked: 1 });
  t.is(await it.table("staged_jobs").count({ parked_job_id: runs }), 1);
  t.deepEqual(await rowOf(it, other), { locked_by: null, attempts: 1, ahead: true }, "it runs");
});

test("nobody takes the slot of a lent job for lost, and its failure is retried by its policy", async (t) => {
  const it = await world(t, 5);
  const [lost, runs] = (await it.inFlight()) as [string, string];
  const run = await runOf(it, runs);
  await locked(it, lost);
  await givesUp(it, { running: [runs] });
  const lostSlots = async () =>
    (await it.pool.query(`select job_id::text from ${INTERNAL}._lost_slots(null)`)).rows.map(
      ({ job_id }) => job_id,
    );
  t.deepEqual(await lostSlots(), []);
  await it.pool.query(`select ${INTERNAL}._lend('a', $1)`, [[runs]]);
  t.deepEqual(await says(it.pool, [run], { anew: false }), [], "the pool has it still");
  t.is((await it.table("in_flight_jobs").one({ job_id: runs })).pool_id, "a");

  const retry = { attempt: 1, revision: 0, after: 5, task: it.policy, priority: 0, maxAttempts: 25 };
  t.deepEqual(await it.release([{ job: runs, ok: false, admission: run.admission, attempt: 1, retry }]), [
    runs,
  ]);
  t.is((await it.table("staged_jobs").one({ parked_job_id: runs })).parked_job_id, runs);
  await it.pool.query(`select ${INTERNAL}._lend('a', $1)`, [[runs]]);
  const { rows } = await it.pool.query(
    "select run_at = 'infinity' as parked from graphile_worker.jobs where id = $1",
    [runs],
  );
  t.true(rows[0].parked, "the pool's heartbeat came late");
});

test("once its pool is silent for too long, the slot of a lent job is looked after as any other", async (t) => {
  const it = await world(t, 5);
  const [lost, runs] = (await it.inFlight()) as [string, string];
  await locked(it, lost, runs);
  await givesUp(it, { running: [runs] });
  await it.table("in_flight_jobs").set({ lent_until: () => "now() - interval '1 second'" }, { job_id: runs });
  const { rows } = await it.pool.query(`select job_id::text from ${INTERNAL}._lost_slots(null)`);
  t.deepEqual(rows, [{ job_id: runs }]);
});

test("while a failure is being recorded nothing is unlocked, because that needs the lock", async (t) => {
  const it = await world(t, 5);
  const [lost, failed] = (await it.inFlight()) as [string, string];
  await locked(it, lost, failed);
  t.deepEqual(await givesUp(it, { recording: [failed] }), { ...NOTHING, is_left: true });
  await workerTable(it.pool).set({ locked_by: null, locked_at: null }, { id: failed });
  t.is((await givesUp(it, { recording: [failed] })).unlocked, 1);
});

test("what had ended well is completed and frees its slot, unless the row is the next job's of its key", async (t) => {
  const it = await world(t, 5);
  const [ended, replaced] = (await it.inFlight()) as [string, string];
  await locked(it, ended, replaced);
  await workerTable(it.pool).set({ revision: 1 }, { id: replaced });
  const said = [ended, replaced].map((job) => ({ job, revision: 0 }));
  t.deepEqual(await givesUp(it, { ended: said }), { ...NOTHING, unlocked: 1, completed: 1 });
  t.is(await workerTable(it.pool).count({ id: ended }), 0);
  t.is(await workerTable(it.pool).count({ id: replaced }), 1);
  t.is(await inFlight(it), 2, "of three");
});

test("a job whose end a promotion has lost waits for its gates again: what ran since may have its slot", async (t) => {
  const it = await world(t, 5);
  const [lost] = (await it.inFlight()) as [string];
  await runOf(it, lost);
  t.deepEqual(await givesUp(it, { lost: [lost], ended: [{ job: lost, revision: 0 }] }), {
    ...NOTHING,
    unlocked: 1,
  });
  t.like(await rowOf(it, lost), { locked_by: null, attempts: 0 }, "this was no attempt");
  t.is(await it.table("staged_jobs").count({ parked_job_id: lost }), 1);
  t.is(await inFlight(it), 2, "of three");
  t.is(await it.passes(), 1);
});

for (const [which, added, why] of [
  ["of a queue", { queueName: "q" }, "the next one of the queue would run beside it"],
  ["with a key", { key: "k" }, "the next one of the key would get its row"],
] as const)
  test(`while a job ${which} runs nothing is unlocked, because ${why}`, async (t) => {
    const it = await world(t);
    const [lost] = (await it.inFlight()) as [string];
    await locked(it, lost);
    const queued = await addPast(it, { task: "other", ...added });
    await fetchJob(it, queued, "a");
    t.deepEqual(await givesUp(it, { running: [queued] }), { ...NOTHING, is_left: true });
    t.is((await givesUp(it, { fetched: [queued] })).unlocked, 1, "it has ended");
  });

test("while a local queue has a job in its last attempt nothing is unlocked, because it would not get that back", async (t) => {
  const it = await world(t, 5);
  const [lost, last] = (await it.inFlight()) as [string, string];
  await locked(it, lost, last);
  await workerTable(it.pool).set({ max_attempts: 1 }, { id: last });
  t.deepEqual(await givesUp(it, { fetched: [last] }), { ...NOTHING, is_left: true });
  await workerTable(it.pool).set({ max_attempts: 2 }, { id: last });
  t.is((await givesUp(it, { fetched: [last] })).unlocked, 1);
});
