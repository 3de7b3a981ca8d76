// Errors whose text PostgreSQL cannot store: the job fails, and its worker goes on.
import test from "ava";
import { runTaskList, type TaskList } from "graphile-worker";
import { definePolicy, RetryAfter, wrapTaskList } from "../../src/index.ts";
import { quietPool } from "../helpers/database.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { until } from "../helpers/until.ts";
import { startWorker } from "../helpers/worker.ts";

const NUL = "cut\0off";
const HALF = "cut \ud83d";
const byEnd = {
  context: (payload: unknown) => ({ key: JSON.stringify(payload) }),
  partitionBy: (ctx: { key: string }) => ctx.key,
  gates: [],
};
const policy = definePolicy("governed", { ...byEnd, history: { keep: "1 hour" } });
const bypass = definePolicy("bypass", { ...byEnd, retries: "bypass" });
const gaveUp = definePolicy("gave_up", { ...byEnd, backoff: () => false });

const rejected = (text: string) => [Promise.reject(new Error(text)), "done"];
/** What a task may do, by its name. */
const ENDS: Readonly<Record<string, () => unknown>> = {
  nul: () => Promise.reject(new TypeError(NUL)),
  half: () => Promise.reject(new Error(HALF)),
  "a text": () => Promise.reject(NUL),
  "at once": () => {
    throw new Error(NUL);
  },
  frozen: () => Promise.reject(Object.freeze(new Error(NUL))),
  hold: () => Promise.reject(new RetryAfter("1 ms", { reason: NUL })),
};
const task: TaskList[string] = (payload) => {
  const { end } = (Array.isArray(payload) ? payload[0] : payload) as { end: string };
  return (Array.isArray(payload) ? rejected(end === "nul" ? NUL : HALF) : ENDS[end]?.()) as Promise<void>;
};
const tasks: TaskList = { governed: task, bypass: task, gave_up: task, native: task };
const BATCHES = ["nul", "half"].map((end) => [{ end }, { end }]);

test("a worker goes on, whatever text a job's error has", async (t) => {
  const worker = await startWorker(t, { policies: [policy, bypass, gaveUp], tasks });
  let added = 0;
  for (const identifier of Object.keys(tasks)) {
    for (const payload of [...Object.keys(ENDS).map((end) => ({ end })), ...BATCHES]) {
      await worker.utils.addJob(identifier, payload, { maxAttempts: 1 });
      added++;
    }
  }
  await worker.sees("job:failed", added);
  await worker.everythingIsReleased();
  const { errors } = await worker.row(
    "select json_agg(distinct replace(last_error, chr(65533), '?')) as errors from graphile_worker.jobs where last_error is not null",
  );
  t.deepEqual(errors.sort(), ["Batch failures:\ncut ?", "Batch failures:\ncut?off", "cut ?", "cut?off"]);
  const { history } = await worker.row(
    "select json_agg(distinct replace(error, chr(65533), '?')) as history from dispatch_policy.history where error is not null",
  );
  t.deepEqual(history.sort(), ["Batch failures:", "cut ?", "cut?off"]);
  await worker.utils.addJob("native", { end: "none" });
  await worker.sees("job:success");
});

test("such an error keeps its stack, and has what was thrown as its cause", async (t) => {
  const worker = await startWorker(t, { policies: [], tasks: { native: task } });
  const errors: unknown[] = [];
  worker.runner.events.on("job:error", ({ error }) => errors.push(error));
  await worker.utils.addJob("native", { end: "nul" }, { maxAttempts: 1 });
  await worker.sees("job:failed");
  const [error] = errors as [Error];
  t.is(error.message, "cut\ufffdoff");
  t.true(error.cause instanceof TypeError);
  t.true(error.stack?.includes("error-texts.test"));
});

test("so do the workers of a host that takes no preset", async (t) => {
  const { url, pool } = await lentDatabase(t);
  const own = quietPool(url);
  t.teardown(() => own.end());
  const wrapped = wrapTaskList({ ...tasks }, { policies: [policy] });
  const workers = runTaskList({ logger: silent, noHandleSignals: true }, wrapped, own);
  t.teardown(() => workers.gracefulShutdown());
  for (const end of Object.keys(ENDS))
    await pool.query("select graphile_worker.add_job('native', $1, max_attempts => 1)", [
      JSON.stringify({ end }),
    ]);
  await until("all have failed", async () => {
    const { rows } = await pool.query(
      "select 1 from graphile_worker.jobs where last_error is not null and locked_at is null",
    );
    return rows.length === Object.keys(ENDS).length;
  });
  t.pass();
});
