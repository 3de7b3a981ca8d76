/** A process of its own: a Graphile Worker, with the preset (`governed`, and `jobs` for those of `--ui`) or without (`plain`). */
import { Logger, run, type Task, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, RetryAfter } from "../../src/index.ts";
import { JOBS } from "./jobs.ts";
import { type Visit, visitEndpoint } from "./policy.ts";

const [mode, connectionString = "", server] = process.argv.slice(2);
const policies = mode === "plain" ? [] : mode === "jobs" ? JOBS.map(({ policy }) => policy) : [visitEndpoint];

/** Says what goes wrong, unless it is what plain workers, or jobs that fail, are here to show. */
const logger = new Logger(() => (level, message, meta) => {
  const isShown = mode === "plain" || (mode === "jobs" && meta?.failure);
  if (!isShown && (level === "error" || level === "warning")) console.error(`worker: ${message}`);
});

const visit: Task = async (payload) => {
  const { endpoint, job } = payload as Visit;
  const response = await fetch(`${server}/visit/${endpoint}/${job}`, { method: "POST" });
  await response.arrayBuffer();
  if (response.status === 429) throw new RetryAfter("1 second", { reason: "429 from the server" });
};

const runner = await run({
  preset: {
    extends: [WorkerPreset, ...(policies.length > 0 ? [dispatchPolicyPreset({ policies })] : [])],
    worker: { connectionString, concurrentJobs: 50, maxPoolSize: 50, logger },
  },
  taskList: {
    visit_endpoint: visit,
    ...(mode === "jobs" && Object.fromEntries(JOBS.map(({ policy, run }) => [policy.identifier, run]))),
  },
  crontab: policies.length > 0 ? "* * * * * dispatch_policy_tick ?jobKey=dispatch_policy_tick" : "",
  noHandleSignals: true,
});

process.on("message", () => stop());
process.on("disconnect", () => process.exit());
process.on("SIGINT", () => {}); // the demo's main process ends this one
process.send?.("ready");

async function stop(): Promise<void> {
  await runner.stop();
  process.exit();
}
