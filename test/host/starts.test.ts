// A job starts, and the database cannot be asked about it: that is no failure of the job. Each has one attempt.
import net from "node:net";
import test, { type ExecutionContext } from "ava";
import { Logger, runOnce, runTaskList, type Task } from "graphile-worker";
import type pg from "pg";
import {
  addPolicyJob,
  concurrency,
  definePolicy,
  dispatchPolicyPreset,
  wrapTaskList,
} from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

/** Connections to a database that end at a statement which names a function. */
async function cuttable(t: ExecutionContext, url: string) {
  const { hostname, port } = new URL(url);
  let arm: { text: string; answered: boolean; times: number } | undefined;
  let cuts = 0;
  const server = net.createServer((client) => {
    const database = net.connect(Number(port), hostname);
    let isAsked = false;
    const end = () => {
      client.destroy();
      database.destroy();
    };
    for (const socket of [client, database]) socket.on("error", end).on("close", end);
    const cut = () => {
      cuts++;
      if (arm) arm.times--;
      end();
    };
    client.on("data", (data) => {
      isAsked = arm !== undefined && arm.times > 0 && data.includes(arm.text);
      if (isAsked && !arm?.answered) cut();
      else database.write(data);
    });
    database.on("data", (data) => {
      if (isAsked) cut();
      else client.write(data);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => server.close());
  const via = new URL(url);
  via.hostname = "127.0.0.1";
  via.port = String((server.address() as net.AddressInfo).port);
  const pool = quietPool(via.href);
  t.teardown(() => pool.end());
  return {
    pool,
    /** The next statements that name it are cut: before they arrive, or when they have committed. */
    cutAt(text: string, { answered = false, times = 1 } = {}): void {
      arm = { text, answered, times };
    },
    cuts: () => cuts,
  };
}

const gates = { gates: [concurrency({ max: 4 })] };
const shared = { gates: [concurrency({ max: 4, perWorker: true })] };
type Add = (pool: pg.Pool, policy: ReturnType<typeof definePolicy>) => Promise<unknown>;
const byTick: Add = (pool, policy) => addPolicyJob(pool, policy, { key: "k" }, { maxAttempts: 1 });
const native = (pool: pg.Pool): Promise<unknown> =>
  pool.query(`select graphile_worker.add_job('p', '{"key": "k"}', max_attempts => 1)`);
const named = (pool: pg.Pool): Promise<unknown> =>
  pool.query(`select graphile_worker.add_job('p', '{"key": "k"}', queue_name => 'q', max_attempts => 1)`);

let calls = 0;

/** At which question, of a policy with these options, for a job that was added so. */
const QUESTIONS: Record<string, [at: string, options: object, add: Add]> = {
  "a recorded start": ["._start_attempt(", { ...gates, slotTimeout: "1 hour" }, byTick],
  "a start with a share": ["._shares_of(", shared, byTick],
  "a job that was added past its policy": ["._catch_unadmitted(", gates, native],
  "its share": ["gate, key, max, forced", shared, native],
  "its partition": [
    "._scope_of(",
    { ...gates, context: () => ({}), partitionBy: () => `${calls++}` },
    byTick,
  ],
  "the name of its queue": ["select id, queue_name", gates, named],
};

for (const [what, [at, options, add]] of Object.entries(QUESTIONS)) {
  for (const answered of [false, true]) {
    test(`${what}: the connection is cut ${answered ? "before the answer" : "at the question"}, and the job runs`, async (t) => {
      const { url, pool } = await testDatabase(t);
      const cut = await cuttable(t, url);
      const policy = definePolicy("p", { partitionBy: "key", ...options });
      const ran: number[] = [];
      const worker = await startWorker(t, {
        database: { url, pool: cut.pool },
        policies: [policy],
        tasks: { p: async (_, { job }) => void ran.push(job.attempts) },
      });
      cut.cutAt(at, { answered });
      await add(pool, policy);
      await worker.sees("job:success");
      await worker.everythingIsReleased();
      t.deepEqual([cut.cuts(), ran], [1, [1]]);
      t.is(worker.happened.filter(({ event }) => event === "job:error").length, 0);
      t.is(worker.log.filter(({ message }) => message.includes("cannot start yet")).length, 1);
    });
  }
}

test("a job is requeued, and the answer is lost: it does not run there, and runs later", async (t) => {
  const { url, pool } = await testDatabase(t);
  const cut = await cuttable(t, url);
  const policy = definePolicy("p", {
    partitionBy: "key",
    ahead: 50,
    gates: [concurrency({ max: 1, perWorker: true })],
  });
  const { promise: goesOn, resolve: goOn } = Promise.withResolvers<void>();
  const { promise: isBusy, resolve: rest } = Promise.withResolvers<void>();
  const ran: number[] = [];
  // it has a share as well, and takes no job
  const busy = await startWorker(t, {
    database: { url, pool },
    policies: [policy],
    tasks: { p: async () => {}, busy: () => isBusy },
    worker: { concurrentJobs: 1 },
  });
  t.teardown(rest);
  await busy.utils.addJob("busy", {});
  await busy.sees("job:start");
  const worker = await startWorker(t, {
    database: { url, pool: cut.pool },
    policies: [policy],
    tasks: {
      p: async (_, { job }) => {
        ran.push(job.attempts);
        await goesOn;
      },
    },
  });
  cut.cutAt("._requeue(", { answered: true });
  await byTick(pool, policy);
  await byTick(pool, policy);
  await until("one runs, and the other was requeued", async () => {
    const { rows } = await pool.query("select from dispatch_policy.staged_jobs");
    return ran.length === 1 && cut.cuts() === 1 && rows.length === 1;
  });
  goOn();
  await until("both have run", () => ran.length === 2);
  await worker.everythingIsReleased(1);
  t.deepEqual(ran, [1, 1]);
  t.is(worker.happened.filter(({ event }) => event === "job:error").length, 0);
});

// before the others of this file and beside none of them, because it moves the clock of the process
test.serial("an outage may last: the job is asked about until the database answers, and runs", async (t) => {
  const { now } = performance;
  t.teardown(() => Object.assign(performance, { now }));
  const { url, pool } = await testDatabase(t);
  const cut = await cuttable(t, url);
  const policy = definePolicy("p", { partitionBy: "key", ...gates, slotTimeout: "1 hour" });
  const ran: number[] = [];
  const worker = await startWorker(t, {
    database: { url, pool: cut.pool },
    policies: [policy],
    tasks: { p: async (_, { job }) => void ran.push(job.attempts) },
  });
  cut.cutAt("._start_attempt(", { times: Number.POSITIVE_INFINITY });
  await byTick(pool, policy);
  await until("it was cut", () => cut.cuts() > 0);
  Object.assign(performance, { now: () => now.call(performance) + 3_600_000 });
  await until("it is asked about an hour later", () => cut.cuts() > 3);
  cut.cutAt("._start_attempt(", { times: 0 });
  await worker.sees("job:success");
  await worker.everythingIsReleased();
  t.deepEqual(ran, [1]);
  t.is(worker.happened.filter(({ event }) => event === "job:error").length, 0);
  t.is(worker.log.filter(({ message }) => message.includes("cannot start yet")).length, 1);
});

/** The question about a start is refused with this code, until the function that is returned is called. */
async function refusesStarts(pool: pg.Pool, code: string): Promise<() => Promise<unknown>> {
  await pool.query(`alter function dispatch_policy_internal._start_attempt rename to _start_attempt_away;
    create function dispatch_policy_internal._start_attempt(bigint, int, int, text, timestamptz, bigint, int) returns table (
      partition text, staged_id bigint, admission bigint, admitted bigint, resumed boolean, cancelled_by text,
      cancel_reason text, doubt text) language plpgsql as $$ begin raise 'not now' using errcode = '${code}'; end $$`);
  return () =>
    pool.query(`drop function dispatch_policy_internal._start_attempt;
      alter function dispatch_policy_internal._start_attempt_away rename to _start_attempt`);
}

// a relation that is rebuilt, a plan of before an upgrade, a trigger of the application, a wrong isolation level
for (const code of ["XX000", "0A000", "P0001", "25000"]) {
  test(`a start that the database refuses with ${code} is no attempt, and occupies no slot`, async (t) => {
    const policy = definePolicy("p", { partitionBy: "key", ...gates, slotTimeout: "1 hour" });
    const ran: number[] = [];
    const worker = await startWorker(t, {
      policies: [policy],
      tasks: { p: async (_, { job }) => void ran.push(job.attempts) },
    });
    const answers = await refusesStarts(worker.pool, code);
    await byTick(worker.pool, policy);
    const [failed] = await worker.sees("job:error");
    t.regex(failed?.error ?? "", /^Job \d+ did not start, and keeps its attempt: .*\(not now\)$/);
    await until("it has its attempt again, and is tried later", async () => {
      const { n } = await worker.row(
        "select count(*)::int as n from graphile_worker.jobs where attempts = 0 and run_at > now()",
      );
      return n === 1;
    });
    await worker.everythingIsReleased();
    await answers();
    await worker.sees("job:success");
    t.deepEqual(ran, [1]);
  });
}

for (const code of ["22P02", "23514", "DPKEY"]) {
  test(`a start that the database refuses with ${code}, because of the job's data, is its failure`, async (t) => {
    const policy = definePolicy("p", { partitionBy: "key", ...gates });
    const worker = await startWorker(t, { policies: [policy], tasks: { p: async () => {} } });
    await refusesStarts(worker.pool, code);
    await native(worker.pool);
    const [failed] = await worker.sees("job:failed");
    t.is(failed?.attempt, 1);
    t.regex(failed?.error ?? "", /^not now/);
  });
}

test("a job cannot be requeued: that is no attempt, and it occupies no slot", async (t) => {
  const policy = definePolicy("p", {
    partitionBy: "key",
    ahead: 50,
    gates: [concurrency({ max: 1, perWorker: true })],
  });
  const { promise: goesOn, resolve: goOn } = Promise.withResolvers<void>();
  const ran: number[] = [];
  const p: Task = async (_, { job }) => {
    ran.push(job.attempts);
    await goesOn;
  };
  const busy = await startWorker(t, {
    policies: [policy],
    tasks: { p, busy: () => goesOn },
    worker: { concurrentJobs: 1 },
  });
  const { pool, database } = busy;
  await busy.utils.addJob("busy", {});
  await busy.sees("job:start");
  const worker = await startWorker(t, { database, policies: [policy], tasks: { p } });
  t.teardown(goOn);
  await pool.query("alter function dispatch_policy_internal._requeue rename to _requeue_away");
  await byTick(pool, policy);
  await byTick(pool, policy);
  const [failed] = await worker.sees("job:error");
  t.regex(failed?.error ?? "", /^Job \d+ did not start, and keeps its attempt: /);
  await until("its slot is free", async () => {
    const { n } = await worker.row(
      "select count(*)::int as n from dispatch_policy.in_flight_jobs where job_id = $1",
      [failed?.id],
    );
    return n === 0;
  });
  await pool.query("alter function dispatch_policy_internal._requeue_away rename to _requeue");
  goOn();
  await until("both have run", () => ran.length === 2);
  await worker.everythingIsReleased();
  t.deepEqual(ran, [1, 1]);
});

test("where nobody can be asked, the attempt and the slot are freed, also without a slot", async (t) => {
  const policy = definePolicy("p", { partitionBy: "key", ...gates, slotTimeout: "1 hour" });
  const ran: number[] = [];
  const worker = await startWorker(t, {
    policies: [policy],
    tasks: { p: async (_, { job }) => void ran.push(job.attempts) },
  });
  const { pool } = worker;
  await pool.query("alter function dispatch_policy_internal._start_attempt rename to _start_attempt_away");
  await byTick(pool, policy);
  await native(pool);
  await worker.sees("job:error", 2);
  await until("both have their attempts again, and no slot", async () => {
    const { n } = await worker.row("select count(*)::int as n from graphile_worker.jobs where attempts = 0");
    return n === 2;
  });
  await worker.everythingIsReleased();
  await pool.query("alter function dispatch_policy_internal._start_attempt_away rename to _start_attempt");
  await worker.sees("job:success", 2);
  await worker.everythingIsReleased();
  t.deepEqual(ran, [1, 1]);
  for (const { error } of worker.happened.filter(({ event }) => event === "job:error"))
    t.regex(error ?? "", /^Job \d+ did not start, and keeps its attempt: /);
});

test("a shutdown ends the questions, and another worker runs the job", async (t) => {
  const { url, pool } = await testDatabase(t);
  const cut = await cuttable(t, url);
  const policy = definePolicy("p", { partitionBy: "key", ...gates, slotTimeout: "1 hour" });
  const ran: number[] = [];
  const tasks = {
    p: async (_: unknown, { job }: { job: { attempts: number } }) => void ran.push(job.attempts),
  };
  const worker = await startWorker(t, {
    database: { url, pool: cut.pool },
    ...{ policies: [policy], tasks, worker: { gracefulShutdownAbortTimeout: 50 } },
  });
  cut.cutAt("._start_attempt(", { times: Number.POSITIVE_INFINITY });
  await byTick(pool, policy);
  await until("it was cut", () => cut.cuts() > 0);
  await worker.stop();
  const next = await startWorker(t, { database: { url, pool }, policies: [policy], tasks });
  await next.sees("job:success");
  await next.everythingIsReleased();
  t.deepEqual(ran, [1]);
});

for (const setting of ["lock_timeout", "statement_timeout"]) {
  test(`a role with a ${setting}: a start waits for an open transaction`, async (t) => {
    const { url, pool } = await testDatabase(t);
    const own = quietPool(url, { options: `-c ${setting}=300ms` });
    t.teardown(() => own.end());
    const policy = definePolicy("p", { partitionBy: "key", gates: [concurrency({ max: 1 })] });
    const { promise: goesOn, resolve: goOn } = Promise.withResolvers<void>();
    const ran: unknown[] = [];
    const worker = await startWorker(t, {
      database: { url, pool: own },
      policies: [policy],
      tasks: {
        p: async ({ name }: { name: string }) => {
          ran.push(name);
          if (name === "first") await goesOn;
        },
      },
    });
    await addPolicyJob(pool, policy, { key: "k", name: "first" });
    await until("the first runs", () => ran.length === 1);
    const application = await pool.connect();
    await application.query("begin");
    await addPolicyJob(application, policy, { key: "k", name: "uncommitted" }, { jobKey: "K" });
    await pool.query(
      `select graphile_worker.add_job('p', '{"key": "k", "name": "native"}', job_key => 'K', max_attempts => 1)`,
    );
    await until("its start waits", () =>
      worker.log.some(({ message }) => message.includes("cannot start yet: canceling statement")),
    );
    await application.query("rollback");
    application.release();
    await until("a copy is staged", async () => {
      const { rows } = await pool.query("select from dispatch_policy.staged_jobs");
      return rows.length > 0;
    });
    goOn();
    await until("both have run", () => ran.length === 2);
    t.deepEqual(ran, ["first", "native"]);
    t.is(worker.happened.filter(({ event }) => event === "job:error").length, 0);
  });
}

test("under wrapTaskList and runOnce as well", async (t) => {
  const policy = definePolicy("p", { partitionBy: "key", ...gates });
  for (const host of ["wrapTaskList", "preset"] as const) {
    const { pool } = await testDatabase(t);
    const ran: number[] = [];
    const tasks = {
      p: async (_: unknown, { job }: { job: { attempts: number } }) => void ran.push(job.attempts),
    };
    const options = { pgPool: pool, logger: new Logger(() => () => {}) };
    const wrapped = host === "wrapTaskList" ? wrapTaskList(tasks, { policies: [policy] }) : tasks;
    const wasTried = async () =>
      ran.length > 0 ||
      (await pool.query("select from graphile_worker.jobs where last_error is not null")).rowCount === 1;
    const runsUntilTried = async () => {
      const workers = runTaskList({ ...options, noHandleSignals: true, pollInterval: 50 }, wrapped, pool);
      await until("the job was tried", wasTried).finally(() => workers.gracefulShutdown());
    };
    const runs = () =>
      host === "wrapTaskList"
        ? runsUntilTried()
        : runOnce({
            preset: { extends: [dispatchPolicyPreset({ policies: [policy] })], worker: { logger: silent } },
            ...{ pgPool: pool, taskList: wrapped },
          });
    await pool.query("alter function dispatch_policy_internal._start_attempt rename to _start_attempt_away");
    await native(pool);
    await runs();
    t.deepEqual(ran, []);
    const attempts = "select attempts from graphile_worker.jobs";
    await until("it has its attempt again", async () => (await pool.query(attempts)).rows[0]?.attempts === 0);
    await pool.query("alter function dispatch_policy_internal._start_attempt_away rename to _start_attempt");
    await until("it has run", async () => {
      await runs();
      return ran.length > 0;
    });
    t.deepEqual(ran, [1]);
  }
});
