// A policy is added to a task whose jobs already wait in Graphile Worker: `adopt` moves them under the policy.
import { execFile } from "node:child_process";
import { EventEmitter } from "node:events";
import { promisify } from "node:util";
import test, { type ExecutionContext } from "ava";
import type { Job, WorkerEvents } from "graphile-worker";
import type pg from "pg";
import {
  type AnyPolicy,
  ArgumentError,
  concurrency,
  definePolicy,
  makePolicyUtils,
  policyEvents,
} from "../../src/index.ts";
import { runCommand } from "../helpers/command.ts";
import { testDatabase } from "../helpers/database.ts";
import { WRONGLY_STAGED } from "../helpers/engine.ts";
import { holdCalls } from "../helpers/held-calls.ts";
import { silent } from "../helpers/silent.ts";
import { nameOf, table, workerNameOf, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { NO_HEARTBEAT, startWorker } from "../helpers/worker.ts";

const work = definePolicy("work", { partitionBy: "account", gates: [concurrency({ max: 1 })] });

/** Utils of a process that has the policy, on a database without workers. */
async function world(t: ExecutionContext, policy: AnyPolicy = work) {
  const database = await testDatabase(t);
  const { pool } = database;
  const utils = await makePolicyUtils({ pgPool: pool, policies: [policy], logger: silent });
  t.teardown(() => utils.release());
  /** Adds a job past the policy, and returns its id. */
  const past = async (payload: object, spec = "") => {
    const text = `select id from graphile_worker.add_job('work', $1${spec})`;
    return (await pool.query(text, [JSON.stringify(payload)])).rows[0].id as string;
  };
  const staged = async () =>
    (
      await pool.query(
        `select s.id, s.partition, s.queue_name, s.run_at, s.max_attempts, s.job_key, s.priority, s.flags, s.payload,
           s.created_at from dispatch_policy.staged_jobs s order by s.id`,
      )
    ).rows;
  return { database, pool, utils, past, staged };
}

test("a job keeps its id, payload, key, queue, priority, runAt, attempts, flags and age", async (t) => {
  const { pool, utils, past, staged } = await world(t);
  const rest = `, queue_name => 'q', run_at => '2020-02-29', max_attempts => 7, job_key => 'k', priority => 3,
    flags => array['mine']`;
  const id = await past({ account: "a", big: 1 }, rest);
  const { rows } = await pool.query("select created_at from graphile_worker.jobs");
  t.deepEqual(await utils.adopt({ task: "work", reason: "new policy", by: "ana" }), {
    matched: 1,
    changed: 1,
  });
  t.deepEqual(await staged(), [
    {
      ...{ id, partition: "a", queue_name: "q", run_at: new Date("2020-02-29 00:00:00"), max_attempts: 7 },
      ...{ job_key: "k", priority: 3, flags: ["mine"], payload: { account: "a", big: 1 } },
      created_at: rows[0].created_at,
    },
  ]);
  t.like(await utils.explain({ id }), { id, partition: "a" });
  const audit = await pool.query("select verb, policy, reason, by, changed from dispatch_policy.audit");
  t.deepEqual(audit.rows, [{ verb: "adopt", policy: "work", reason: "new policy", by: "ana", changed: 1 }]);
});

test("a job that was added with an admitted job's flags leaves that one's flag behind, and goes its own way", async (t) => {
  const byFunction = definePolicy("work", {
    context: (payload: unknown) => payload as { account: string },
    partitionBy: ({ account }) => account,
  });
  const { pool, utils, staged } = await world(t, byFunction);
  await utils.addJob("work", { account: "a" } as never);
  await utils.tick();
  await pool.query(
    `select graphile_worker.add_job('work', '{"account": "b"}',
       flags => array(select jsonb_object_keys(flags) from graphile_worker.jobs) || array['mine'])`,
  );
  t.like(await utils.adopt({ task: "work" }), { changed: 1 });
  t.like(await staged(), [{ flags: ["mine"] }]);
  t.is((await utils.tick()).admitted, 1);
});

test("adopted jobs run by their priority, runAt and age, and a runAt ahead is waited for", async (t) => {
  const { database, utils, past } = await world(t);
  const soon = new Date(Date.now() + 2000);
  await past({ account: "a", n: 4 }, `, run_at => '${soon.toISOString()}'`);
  await past({ account: "a", n: 2 });
  await past({ account: "a", n: 3 });
  await past({ account: "a", n: 1 }, ", priority => -5");
  t.is((await utils.adopt({ task: "work" })).changed, 4);
  t.deepEqual((await database.pool.query(WRONGLY_STAGED)).rows, []);
  const ran: { n: number; job: Job; at: Date }[] = [];
  const worker = await startWorker(t, {
    ...{ database, policies: [work] },
    tasks: {
      work: async (payload, { job }) => {
        ran.push({ n: (payload as { n: number }).n, job, at: new Date() });
      },
    },
  });
  await worker.sees("job:success", 4);
  t.deepEqual(
    ran.map(({ n }) => n),
    [1, 2, 3, 4],
  );
  t.deepEqual(ran[3]!.job.run_at, soon);
  t.true(ran[3]!.at >= soon);
  await worker.everythingIsReleased();
});

test("a job without a runAt of its own does not go before what waits in Graphile Worker already", async (t) => {
  const { pool, utils, past } = await world(t);
  await past({ account: "given" }, ", run_at => now() + interval '20 minutes'");
  await past({ account: "older" }, ", run_at => now() - interval '1 hour'");
  await past({ account: "replaced" }, ", job_key => 'k'");
  await past({ account: "replaced" }, ", job_key => 'k'");
  await past({ account: "none" });
  const anHourEarlier = (its: string) => `${its} - interval '1 hour'`;
  await workerTable(pool).set({
    created_at: anHourEarlier,
    updated_at: anHourEarlier,
    run_at: anHourEarlier,
  });
  await utils.adopt({ task: "work" });
  const before = new Date();
  await utils.tick({ policy: "work" });
  const { rows } = await pool.query("select from dispatch_policy.partitions");
  t.is(rows.length, 4);
  const jobs = await pool.query(
    `select f.partition, j.run_at > $1::timestamptz - interval '2 minutes' as fresh
     from dispatch_policy.in_flight_jobs f join graphile_worker.jobs j on j.id = f.job_id order by 1`,
    [before],
  );
  t.deepEqual(jobs.rows, [
    { partition: "given", fresh: false },
    { partition: "none", fresh: true },
    { partition: "older", fresh: true },
    { partition: "replaced", fresh: true },
  ]);
});

test("adoption wakes the tick loops", async (t) => {
  const { pool, utils, past } = await world(t);
  const client = await pool.connect();
  t.teardown(() => client.release(true));
  const said: string[] = [];
  client.on("notification", ({ payload }) => said.push(JSON.parse(payload!).policy));
  await client.query("listen dispatch_policy");
  await past({ account: "a" });
  await utils.adopt({ task: "work" });
  await until("a loop would hear of it", () => said.includes("work"));
  t.pass();
});

test("one that was in flight at an uninstall is adopted once the package is there again, in its turn", async (t) => {
  const { pool, utils, staged } = await world(t);
  await utils.addJob("work", { account: "a" } as never);
  await utils.tick({ policy: "work" });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 0, changed: 0 }, "it has a slot");
  await table(pool, "in_flight_jobs").remove(); // as a new schema has none
  await table(pool, "limiters").set({ in_flight: 0 });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 1, changed: 1 });
  t.is((await staged()).length, 1);
  t.false((await table(pool, "staged_jobs").one()).run_at_given);
  t.is((await utils.tick()).admitted, 1);
});

test("one that failed and was unstaged is adopted again, with its id and its attempts", async (t) => {
  const { pool, utils } = await world(t);
  await utils.addJob("work", { account: "a" } as never);
  await utils.tick({ policy: "work" });
  const [{ job_id: id }] = (await pool.query("select job_id from dispatch_policy.in_flight_jobs")).rows;
  const later = () => "now() + interval '1 hour'";
  await workerTable(pool).set({ attempts: 1, last_error: "oops", run_at: later });
  t.is((await utils.sweep()).repaired.jobs, 1);
  await utils.disable({ policy: "work" });
  t.like(await utils.unstage({ policy: "work" }), { changed: 1 });
  await utils.enable({ policy: "work" });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 1, changed: 1 });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 0, changed: 0 });
  await utils.rescheduleJobs([id], { runAt: new Date() });
  await utils.tick({ policy: "work" });
  const { rows } = await pool.query(
    "select id, attempts, last_error, run_at <= now() as ready from graphile_worker.jobs",
  );
  t.deepEqual(rows, [{ id, attempts: 1, last_error: "oops", ready: true }]);
});

test("a job that has failed keeps its id, attempts and error, and is parked until its time", async (t) => {
  const { database, pool, utils, past } = await world(t);
  const id = await past({ account: "a" }, ", job_key => 'k', priority => 3, max_attempts => 4");
  const before = () => "now() - interval '1 minute'";
  await workerTable(pool).set({ attempts: 2, last_error: "oops", run_at: before });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 1, changed: 1 });
  const { rows } = await pool.query(
    `select id, state, attempts, max_attempts, last_error, priority, key, run_at < now() as due from dispatch_policy.jobs`,
  );
  t.deepEqual(rows, [
    {
      ...{ id, state: "parked", attempts: 2, max_attempts: 4, last_error: "oops", priority: 3, key: "k" },
      due: true,
    },
  ]);
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 0, changed: 0 });
  const ran: Job[] = [];
  const worker = await startWorker(t, {
    ...{ database, policies: [work] },
    tasks: { work: async (_payload, { job }) => void ran.push(job) },
  });
  await worker.sees("job:success");
  t.deepEqual(
    ran.map((job) => [job.id, job.attempts, job.priority]),
    [[id, 3, 3]],
  );
  await worker.everythingIsReleased();
});

test("what stays: jobs that run, that failed for good, that never start, or whose retries go past the gates", async (t) => {
  const { pool, utils, past } = await world(
    t,
    definePolicy("work", { partitionBy: "account", retries: "bypass", gates: [concurrency({ max: 1 })] }),
  );
  const ids = await Promise.all(Array.from({ length: 4 }, () => past({ account: "a" })));
  const jobs = workerTable(pool);
  await jobs.set({ locked_at: () => "now()", locked_by: "w", attempts: 1 }, { id: ids[0] });
  await jobs.set({ attempts: () => "max_attempts" }, { id: ids[1] });
  await jobs.set({ run_at: "infinity" }, { id: ids[2] });
  await jobs.set({ attempts: 1, last_error: "oops" }, { id: ids[3] });
  await pool.query("select graphile_worker.add_job('plain')");
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 0, changed: 0 });
  t.is((await pool.query("select from graphile_worker.jobs")).rows.length, 5);
});

test("a job whose payload has no key stays, to fail at its start, and keeps no other back", async (t) => {
  const { pool, utils, past, staged } = await world(t);
  const wrong = [await past({ n: 1 }), await past({ account: null }), await past({ account: "nul\0" })];
  for (const account of ["a", "b"]) await past({ account });
  wrong.push(await past({ n: 2 }));
  await workerTable(pool).set({ attempts: 1, last_error: "oops" }, { id: wrong[3] });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 6, changed: 2 });
  t.deepEqual(
    (await staged()).map(({ partition }) => partition),
    ["a", "b"],
  );
  const { rows } = await pool.query(
    "select id, run_at < 'infinity' as runs from graphile_worker.jobs order by id",
  );
  t.deepEqual(
    rows,
    wrong.map((id) => ({ id, runs: true })),
  );
});

test("a policy whose key is a function: the next tick of a process that has it works the keys out", async (t) => {
  const byFunction = definePolicy("work", {
    context: (payload: unknown) => payload as { account: string },
    partitionBy: ({ account }) => account.toUpperCase(),
    gates: ({ concurrency: cap }) => [cap({ max: ({ account }) => (account === "a" ? 2 : 1) })],
  });
  const { pool, utils, past, staged } = await world(t, byFunction);
  for (const account of ["a", "a", "a", "b", "b"]) await past({ account });
  const tried = await past({ account: "b" });
  await workerTable(pool).set({ attempts: 1, last_error: "oops" }, { id: tried });
  t.is((await utils.adopt({ task: "work" })).changed, 6);
  const { rows } = await pool.query("select distinct reason from dispatch_policy.staged_jobs");
  t.deepEqual(rows, [{ reason: "waiting_key" }]);
  t.is((await utils.tick({ policy: "work" })).admitted, 3);
  t.deepEqual(
    (await staged()).map(({ partition }) => partition),
    ["A", "B", "B"],
  );
});

test("adopted jobs count in a bounded backlog, and none is refused", async (t) => {
  const { pool, utils, past } = await world(
    t,
    definePolicy("work", {
      partitionBy: "account",
      gates: [concurrency({ max: 1 })],
      maxPending: { partition: 1, policy: 2 },
    }),
  );
  for (let n = 0; n < 5; n++) await past({ account: "a" });
  t.is((await utils.adopt({ task: "work" })).changed, 5);
  const pending = await table(pool, "pending").all({ policy: "work" });
  t.is(
    pending.reduce((sum, { jobs }) => sum + Number(jobs), 0),
    5,
  );
  await t.throwsAsync(utils.addJob("work", { account: "b" }), { name: "BacklogFullError" });
});

for (const bound of [{ partition: 3 }, { policy: 3 }, { partition: 3, policy: 3 }]) {
  test(`a new job takes the place of one adopted job, not of all: ${JSON.stringify(bound)}`, async (t) => {
    const { utils, past, staged } = await world(
      t,
      definePolicy("work", {
        partitionBy: "account",
        gates: [concurrency({ max: 1 })],
        maxPending: { ...bound, whenFull: "drop_oldest" },
      }),
    );
    for (let n = 0; n < 9; n++) await past({ account: "a", old: n });
    t.is((await utils.adopt({ task: "work" })).changed, 9);
    const left = async () => {
      const olds = (await staged()).map(({ payload }) => payload.old !== undefined);
      return [olds.filter((old) => old).length, olds.filter((old) => !old).length];
    };
    const seen: number[][] = [];
    for (let n = 0; n < 10; n++) {
      await utils.addJob("work", { account: "a", new: n } as never);
      seen.push(await left());
    }
    t.deepEqual(seen.slice(0, 3), [
      [8, 1],
      [7, 2],
      [6, 3],
    ]);
    t.deepEqual(seen.at(-1), [0, 3], "the newest are kept");
    t.is((await utils.sweep()).repaired.pending, 0);
  });
}

test("a dry run counts, and a call adopts more jobs than a step", async (t) => {
  const { pool, utils } = await world(t);
  await pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row('work', json_build_object('account', n % 7), null, null, null, null, null, null)::graphile_worker.job_spec
       from generate_series(1, 4500) n))`,
  );
  t.deepEqual(await utils.adopt({ task: "work", dryRun: true }), { matched: 4500, changed: 0 });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 4500, changed: 4500 });
  const { rows } = await pool.query(
    "select count(*)::int as jobs, count(distinct partition)::int as partitions from dispatch_policy.staged_jobs",
  );
  t.deepEqual(rows, [{ jobs: 4500, partitions: 7 }]);
});

test("jobs that are added all the time do not keep a call going", async (t) => {
  const { pool, utils, past } = await world(t);
  const another = `perform graphile_worker.add_job('work', '{"account": "a"}')`;
  await table(pool, "audit").after("insert", another);
  await past({ account: "a" });
  t.deepEqual(await utils.adopt({ task: "work" }), { matched: 1, changed: 1 });
});

test("only the jobs of a task whose policy is declared and switched on are adopted", async (t) => {
  const { utils, past } = await world(t);
  await past({ account: "a" });
  const unknown = await t.throwsAsync(utils.adopt({ task: "plain" }), { instanceOf: ArgumentError });
  t.regex(unknown.message, /task is 'plain', expected a task with a policy/);
  await t.throwsAsync(utils.adopt({} as never), { instanceOf: ArgumentError, message: /adopt: task/ });
  await utils.disable({ policy: "work" });
  const off = await t.throwsAsync(utils.adopt({ task: "work" }), { instanceOf: ArgumentError });
  t.regex(off.message, /switched off/);
});

test("a policy that is switched off gives adopted jobs to Graphile Worker again", async (t) => {
  const { pool, utils, past } = await world(t);
  for (let n = 0; n < 3; n++) await past({ account: "a" });
  const tried = await past({ account: "a" });
  await workerTable(pool).set({ attempts: 1, last_error: "oops" }, { id: tried });
  t.is((await utils.adopt({ task: "work" })).changed, 4);
  await utils.disable({ policy: "work" });
  await utils.tick({ policy: "work" });
  const { rows } = await pool.query(
    "select count(*)::int as jobs, sum(attempts)::int as attempts from graphile_worker.jobs where run_at < 'infinity'",
  );
  t.deepEqual(rows, [{ jobs: 4, attempts: 1 }]);
});

test("the command adopts by itself, and after a migration", async (t) => {
  const { database, past, pool } = await world(t);
  const main = new URL("../../src/cli/main.ts", import.meta.url).pathname;
  const command = async (...args: string[]) =>
    (await promisify(execFile)(process.execPath, [main, ...args, "--connection", database.url])).stdout;
  await past({ account: "a" });
  t.is(await command("adopt", "--task", "work", "--dry-run"), "work: 1 job to adopt.\n");
  t.is(await command("adopt", "--task", "work"), "work: adopted 1 of 1 job.\n");
  await past({ account: "b" });
  t.is(await command("migrate", "--adopt", "work"), "Schemas are up to date.\nwork: adopted 1 of 1 job.\n");
  t.is((await pool.query("select from dispatch_policy.staged_jobs")).rows.length, 2);
  const refused = await t.throwsAsync(command("adopt"));
  t.regex(String((refused as { stderr?: string }).stderr), /missing --task/);
});

test("a worker that catches many jobs adopts the others by itself", async (t) => {
  const { database, pool } = await world(t);
  const jobs = 90; // each partition's run one after another
  await pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row('work', json_build_object('account', n % 3), null, null, null, null, null, null)::graphile_worker.job_spec
       from generate_series(1, $1) n))`,
    [jobs],
  );
  let ran = 0;
  const events: WorkerEvents = new EventEmitter();
  let adopted = 0;
  policyEvents(events).on("dispatchPolicy:adopt", ({ policy, task, count }) => {
    t.deepEqual([policy, task], ["work", "work"]);
    adopted += count;
  });
  const worker = await startWorker(t, {
    ...{ database, policies: [work], worker: { events } },
    tasks: { work: async () => void ran++ },
  });
  await until("all ran", () => ran === jobs, { seen: () => [ran, adopted] });
  await worker.everythingIsReleased();
  t.true(adopted > 0);
  t.true(worker.log.some(({ message }) => /^Adopted \d+ jobs of work that waited/.test(message)));
  t.is((await pool.query("select from graphile_worker.jobs")).rows.length, 0);
  t.is(ran, jobs);
  for (const more of [[], ["--dry-run"]])
    t.like(await runCommand(database.url, "adopt", "--task", "work", ...more), {
      stdout: `work: no job is left to adopt; workers have adopted ${adopted} jobs already.\n`,
      code: 0,
    });
});

const open = definePolicy("work", { partitionBy: "account" });

/** Adds so many jobs past the policy, numbered from 1. */
const addMany = (pool: pg.Pool, jobs: number) =>
  pool.query(
    `select count(*) from graphile_worker.add_jobs(array(
       select row('work', json_build_object('account', n % 50, 'n', n), null, null, null, null, null, null)
         ::graphile_worker.job_spec
       from generate_series(1, $1) n))`,
    [jobs],
  );

/** A step of a worker's adoption does not end before `goOn`. */
const holdAdoption = (pool: pg.Pool) =>
  holdCalls(pool, "_adopt_unless_busy", `insert on ${nameOf("staged_jobs")}`);

test("while a worker adopts, other tasks' jobs start before the older ones that wait", async (t) => {
  const jobs = 5000;
  const { database, pool } = await world(t, open);
  await addMany(pool, jobs);
  const { isHeld, goOn } = await holdAdoption(pool);
  const ran: number[] = [];
  let others = 0;
  const worker = await startWorker(t, {
    ...{ database, policies: [open] },
    tasks: {
      work: async (payload) => void ran.push((payload as { n: number }).n),
      other: () => void others++,
    },
  });
  await isHeld();
  await worker.utils.addJob("other", {});
  await until("the other task's job has started", () => others === 1);
  const { n } = await worker.row(
    "select count(*)::int as n from graphile_worker.jobs where task_identifier = 'work' and flags is null",
  );
  t.true(n > jobs - 100, `${n} jobs waited still`);
  await goOn();
  await until("all ran", () => ran.length >= jobs, { withinMs: 90_000, seen: () => ran.length });
  await worker.everythingIsReleased();
  t.deepEqual(
    ran.toSorted((a, b) => a - b),
    Array.from({ length: jobs }, (_, n) => n + 1),
  );
});

/** What a worker did not do, if it did not run adopted jobs. */
const SEEN = `select (select count(*) from dispatch_policy.staged_jobs) as staged,
  (select count(*) from dispatch_policy.in_flight_jobs) as in_flight,
  (select count(*) from graphile_worker.jobs where flags is not null) as admitted,
  (select count(*) from graphile_worker.jobs where flags is null) as waiting,
  (select jsonb_agg(l) from ${nameOf("leases")} l) as leases`;

test("adopted jobs go at once, although the worker that adopts them has just released others of their policy", async (t) => {
  const jobs = 1000; // so many that the worker has not caught them all before the adoption's first step
  const { database, pool } = await world(t, open);
  await addMany(pool, jobs);
  const { isHeld, goOn } = await holdAdoption(pool);
  let ran = 0;
  const worker = await startWorker(t, {
    ...{ database, policies: [open], preset: NO_HEARTBEAT },
    tasks: { work: async () => void ran++ },
  });
  const seen = async () => [ran, await worker.row(SEEN), worker.log.map(({ message }) => message)];
  await isHeld();
  const since = performance.now();
  await until("it leads", async () => (await table(pool, "leases").count()) > 0);
  // If a row was locked for a moment, a caught job was copied. Its copy is not fetched before the step ends.
  let copies = 0;
  await until(
    "those that were caught have run and are released, but copies",
    async () => {
      const found = await worker.row(`select
        (select count(*)::int from graphile_worker.jobs where flags is not null) as admitted,
        (select count(*)::int from dispatch_policy.in_flight_jobs) as in_flight,
        not exists (select from dispatch_policy.staged_jobs)
          and not exists (select from graphile_worker.jobs where locked_at is not null) as rests`);
      copies = found.admitted;
      return found.rests && found.in_flight === copies;
    },
    { seen },
  );
  const caught = ran;
  const heldMs = Math.round(performance.now() - since);
  // A leader's heartbeat would find the adopted jobs. It keeps its lease, and finds nothing.
  await pool.query(`alter function dispatch_policy_internal._beat rename to _beat_itself;
    create function dispatch_policy_internal._beat(text, int, text[], text, int, interval, text[], text[], interval, boolean, interval)
      returns table (policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean, busy boolean)
      begin atomic
        select b.policy, b.shard, b.leads, b.expires_in_ms, null::float8, false, b.busy
        from dispatch_policy_internal._beat_itself($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) b;
      end`);
  await goOn();
  await until("an adopted job has run", () => ran > caught + copies, { seen });
  await until("all ran", () => ran === jobs, { seen: () => ran });
  t.true(
    caught + copies >= 10 && caught + copies < jobs,
    `${caught} were caught and ${copies} copied while a step was held for ${heldMs} ms; ${JSON.stringify(worker.log.map(({ message }) => message))}`,
  );
});

for (const localQueue of [undefined, { size: 20 }]) {
  test(`a worker that cannot read its tasks' ids after an adoption reads them again, ${localQueue ? "with" : "without"} localQueue`, async (t) => {
    const { database, pool } = await world(t, open);
    const jobs = 500;
    await addMany(pool, jobs);
    // the adoption ends after the worker has read its tasks' ids without this task: only then it reads them once more
    await pool.query(`create table public.refuses ();
      create sequence public.reads;
      create function public.refuse() returns trigger language plpgsql as $$ begin
        perform nextval('public.reads') where current_query() like '%as u(i) where not exists%';
        if current_query() like '%as u(i) where not exists%' and exists (select from public.refuses) then
          raise exception 'refused for now';
        end if;
        return null;
      end $$;
      create trigger refuse before insert on ${workerNameOf("tasks")}
        for each statement execute function public.refuse();
      create function public.refuses() returns trigger language plpgsql as $$ begin
        if current_query() like '%_adopt_unless_busy(%' then
          insert into public.refuses default values;
          while (select last_value from public.reads) < 2 loop perform pg_sleep(0.01); end loop;
        end if;
        return null;
      end $$;
      create trigger refuses after insert on ${nameOf("staged_jobs")}
        for each statement execute function public.refuses()`);
    let ran = 0;
    const worker = await startWorker(t, {
      ...{ database, policies: [open], worker: { pollInterval: 100, ...(localQueue && { localQueue }) } },
      tasks: { work: async () => void ran++ },
    });
    const refused = () => worker.log.filter(({ message }) => /refused for now/.test(message)).length;
    await until("it was refused", () => refused() > 0, { seen: () => [ran, refused()] });
    await pool.query(`drop trigger refuses on ${nameOf("staged_jobs")}; delete from public.refuses`);
    await until("all ran", () => ran === jobs, { seen: () => [ran, refused()] });
    t.pass();
  });
}

for (const unmanaged of ["run", "reject"] as const) {
  test(`a worker adopts nothing by itself under unmanaged: ${unmanaged}`, async (t) => {
    const policy = definePolicy("work", { partitionBy: "account", gates: [], unmanaged });
    const { database, pool } = await world(t, policy);
    await pool.query(
      `select count(*) from graphile_worker.add_jobs(array(
         select row('work', '{"account": "a"}', null, null, null, null, null, null)::graphile_worker.job_spec
         from generate_series(1, 40)))`,
    );
    const worker = await startWorker(t, { database, policies: [policy], tasks: { work: async () => {} } });
    let adopted = 0;
    policyEvents(worker.runner.events).on("dispatchPolicy:adopt", ({ count }) => {
      adopted += count;
    });
    await worker.sees("job:success", 40);
    await worker.stop();
    t.is(adopted, 0);
  });
}
