/** One worker process. It ends gracefully when its parent disconnects, or by SIGTERM. */
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type Task, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset } from "graphile-worker-dispatch-policy";
import { makeReport } from "./policies.ts";

const problemsOnly = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") console.error(message);
});

/** Records in a table who runs it, and how many run at once over all processes. */
const report: Task = async (_, { job, query }) => {
  await query("insert into runs (job, pid) values ($1, $2)", [job.id, process.pid]);
  await query("update runs set at_once = (select count(*) from runs where not ended) where job = $1", [
    job.id,
  ]);
  await delay(30);
  await query("update runs set ended = true where job = $1", [job.id]);
};

const runner = await run({
  preset: {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [makeReport] })],
    worker: {
      connectionString: process.env.DATABASE_URL ?? "postgres:///app",
      concurrentJobs: 2,
      maxPoolSize: 4, // of Graphile Worker; this package keeps up to five more
      logger: problemsOnly,
    },
  },
  taskList: { make_report: report },
});
process.once("disconnect", () => runner.stop());
