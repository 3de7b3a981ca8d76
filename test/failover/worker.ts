// A worker under the preset, with its default settings. Its tasks tell the log when they start and end, and no database.
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type WorkerEvents, WorkerPreset } from "graphile-worker";
import { dispatchPolicyPreset, policyEvents, survivingPool } from "../../src/index.ts";
import { quietPool } from "../helpers/database.ts";
import { openLog } from "./events.ts";
import { type Payload, POLICIES } from "./policies.ts";
import type { Orders } from "./processes.ts";

const CONNECTIONS = 14;
const { url, file, name: w, dies }: Orders = JSON.parse(process.argv[2]!);
const log = openLog(file);
const say = (message: string) => log({ k: "said", w, message: message.slice(0, 300) });
const events: WorkerEvents = new EventEmitter();
const ours = policyEvents(events);
ours.on("dispatchPolicy:sweep", ({ repaired }) => say(`swept ${JSON.stringify(repaired)}`));
ours.on("dispatchPolicy:promoted", (told) => say(`promoted ${JSON.stringify(told)}`));
events.on("pool:fatalError", ({ error, action }) => say(`fatal: ${action}: ${error}`));
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") say(message);
});
process.on("unhandledRejection", (error) => {
  say(`unhandled: ${error}`);
  process.exit(1); // as it ends in production
});
process.on("disconnect", () => process.exit(0)); // the conductor has gone

const { work, call, slide } = POLICIES;
const task = (policy: (typeof POLICIES)[keyof typeof POLICIES]) =>
  policy.task(async (payload, { job, dispatchPolicy }) => {
    const { id, key, ms } = payload as unknown as Payload;
    const { stagedId, admittedAt } = dispatchPolicy;
    const admitted = admittedAt?.getTime() ?? 0;
    log({ k: "start", w, id, task: policy.identifier, key, row: job.id, staged: stagedId ?? "", admitted });
    await delay(ms);
    log({ k: "end", w, id, row: job.id });
  });
const runner = await run({
  preset: {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work, call, slide] })],
    worker: { events, logger, concurrentJobs: 12 },
  },
  pgPool: dies
    ? quietPool(url, { max: CONNECTIONS })
    : survivingPool({ connectionString: url, max: CONNECTIONS }),
  noHandleSignals: true,
  taskList: { work: task(work), call: task(call), slide: task(slide) },
});
await runner.promise.catch((error) => say(`ended: ${error.message}`));
process.exit(1);
