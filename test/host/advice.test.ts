// What a worker says at its start of set-ups that would go wrong in silence.
import test, { type ExecutionContext } from "ava";
import { Logger, run, WorkerPreset } from "graphile-worker";
import { type AnyPolicy, definePolicy, dispatchPolicyPreset } from "../../src/index.ts";
import { quietPool, testDatabase } from "../helpers/database.ts";
import { findPgBouncer, pgBouncer } from "../helpers/pgbouncer.ts";
import { greet } from "../helpers/policies.ts";
import { until } from "../helpers/until.ts";
import { isChecked, startWorker } from "../helpers/worker.ts";

const program = findPgBouncer();
const pooled = program ? test : test.skip;
if (!program)
  console.error("# Skipped: workers through PgBouncer, which is not installed (or name it in PGBOUNCER)");

const shared = definePolicy("shared", { tasks: ["mail", "print"], partitionBy: "name" });

type Log = readonly { readonly level: string; readonly message: string }[];

const warnings = (log: Log) => log.filter(({ level }) => level === "warning").map(({ message }) => message);

const missing = (task: string, policy: string) =>
  `No worker that runs now has the task "${task}" of policy "${policy}". Its jobs are admitted, and wait until a ` +
  "worker has it. Register the task under this name, or start the worker that has it";

test("a task of a policy that no worker has is named, and one that another worker has is not", async (t) => {
  const database = await testDatabase(t);
  const first = await startWorker(t, {
    database,
    policies: [greet, shared],
    tasks: { greeet: async () => {}, mail: async () => {} },
  });
  await until("both are named", () => warnings(first.log).length >= 2);
  t.deepEqual(warnings(first.log).toSorted(), [missing("greet", "greet"), missing("print", "shared")]);
  const second = await startWorker(t, {
    database,
    policies: [greet, shared],
    tasks: { greet: async () => {} },
  });
  await until("one is named", () => warnings(second.log).length >= 1);
  t.deepEqual(warnings(second.log), [missing("print", "shared")]);
});

test("a policy without gates is said to have none, once, and is no warning", async (t) => {
  const worker = await startWorker(t, {
    policies: [greet, shared],
    tasks: { greet: async () => {}, mail: async () => {}, print: async () => {} },
  });
  await isChecked(worker.log);
  t.true(
    worker.log.some(({ message }) =>
      message.startsWith('Started with policies "greet", "shared" (without gates); this worker leads'),
    ),
  );
  t.deepEqual(warnings(worker.log), []);
});

/** Starts a worker whose connections all go to this url. Returns its warnings. */
async function startThrough(t: ExecutionContext, url: string, policies: readonly AnyPolicy[]) {
  const log: { level: string; message: string }[] = [];
  const pool = quietPool(url);
  const runner = await run({
    preset: {
      extends: [WorkerPreset, dispatchPolicyPreset({ policies })],
      worker: {
        pollInterval: 100,
        preparedStatements: false,
        logger: new Logger(() => (level, message) => void log.push({ level, message })),
      },
    },
    pgPool: pool,
    noHandleSignals: true,
    taskList: { greet: async () => {} },
  });
  t.teardown(async () => {
    await runner.stop();
    await pool.end();
  });
  return log;
}

const POOLED = /^This worker is connected through a pooler in transaction mode.*session mode/;

pooled(
  "a worker behind a pooler in transaction mode is told that no notification gets through",
  async (t) => {
    const { url } = await testDatabase(t);
    const log = await startThrough(t, await pgBouncer(t, program!, url), [greet]);
    await until("it is told", () => warnings(log).some((line) => POOLED.test(line)));
    t.is(warnings(log).filter((line) => POOLED.test(line)).length, 1);
  },
);

pooled("so it is if the pooler has one session for all, or hands out the one it used last", async (t) => {
  for (const more of ["default_pool_size = 1", "server_round_robin = 0\ndefault_pool_size = 8"]) {
    const { url } = await testDatabase(t);
    const log = await startThrough(t, await pgBouncer(t, program!, url, { more }), [greet]);
    await until("it is told", () => warnings(log).some((line) => POOLED.test(line)));
  }
  t.pass();
});

pooled("a worker behind a pooler in session mode, or at the server itself, is not", async (t) => {
  for (const behind of [true, false]) {
    const { url } = await testDatabase(t);
    const more = "pool_mode = session\ndefault_pool_size = 20";
    const log = await startThrough(t, behind ? await pgBouncer(t, program!, url, { more }) : url, [greet]);
    await isChecked(log);
    t.deepEqual(warnings(log), []);
  }
});
