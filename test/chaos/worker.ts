// A worker under the preset.
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type WorkerEvents, WorkerPreset } from "graphile-worker";
import pg from "pg";
import { dispatchPolicyPreset, policyEvents } from "../../src/index.ts";
import { MODES } from "../fixtures/governed/modes.ts";
import { onCommand, orders, stopAtEnd, tell } from "./member.ts";
import { perform } from "./perform.ts";
import { type Payload, policiesOf, SETTINGS } from "./world.ts";

const CONNECTIONS = 5;
const { work, call, render } = policiesOf(orders.release);
const mode = Object.values(MODES)[orders.place % Object.keys(MODES).length];
const pool = new pg.Pool({
  connectionString: orders.url,
  max: CONNECTIONS,
  application_name: String(orders.life), // by which the log of copies knows it
});
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const events: WorkerEvents = new EventEmitter();
policyEvents(events).on("dispatchPolicy:sweep", ({ repaired }) => tell({ swept: repaired as never }));
policyEvents(events).on("dispatchPolicy:requeue", () => tell({ requeued: true }));
events.on("pool:fatalError", () => tell({ unrecorded: true }));
const logger = new Logger((scope) => (level, message) => {
  if (process.env.CHAOS_LOG && level !== "info" && level !== "debug" && !message.includes("on purpose")) {
    console.error(`worker ${orders.place} ${level} ${scope.label} ${message}`);
  }
});

onCommand((command) => {
  if ("hog" in command) void hog(command.hog);
});

const running = run({
  preset: {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies: [work, call, render], ...SETTINGS })],
    worker: { events, concurrentJobs: 8, pollInterval: 1000, logger, ...mode },
  },
  pgPool: pool,
  noHandleSignals: true,
  taskList: {
    work: work.task((payload, { job, dispatchPolicy, abortSignal }) =>
      perform("work", payload as Payload, job, dispatchPolicy, abortSignal),
    ),
    call: call.task((payload, { job, dispatchPolicy }) =>
      perform("call", payload as Payload, job, dispatchPolicy),
    ),
    render: render.task((payload, { job, dispatchPolicy }) =>
      perform("render", payload as Payload, job, dispatchPolicy),
    ),
  },
});
stopAtEnd(running);
const runner = await running;
tell({ ready: true });
// a pool that shut itself down, since it could not complete a job: as in production, its process ends, and another comes
await runner.promise.catch(() => tell({ met: "shutdown" }));
process.exit(0);

async function hog(ms: number): Promise<void> {
  const clients = Array.from({ length: CONNECTIONS }, async () => {
    const client = await pool.connect();
    await delay(ms);
    client.release();
  });
  await Promise.allSettled(clients);
}
