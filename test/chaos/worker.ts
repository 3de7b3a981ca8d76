// A worker under the preset. Its tasks tell the conductor of each start, before they do anything, and of each end, before
// anything is given back: so what the conductor sees running at once is never too much.
import { EventEmitter } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Logger, run, type WorkerEvents, WorkerPreset } from "graphile-worker";
import pg from "pg";
import { dispatchPolicyPreset, policyEvents } from "../../src/index.ts";
import { ticketOf } from "../../src/run/fetched-job.ts";
import { MODES } from "../fixtures/governed/modes.ts";
import { onCommand, orders, tell } from "./member.ts";
import type { Execution } from "./messages.ts";
import { call, type Payload, policies, SETTINGS, type TaskName, work } from "./world.ts";

const CONNECTIONS = 5;
const mode = Object.values(MODES)[orders.place % Object.keys(MODES).length];
const pool = new pg.Pool({
  connectionString: orders.url,
  max: CONNECTIONS,
  application_name: String(orders.life), // by which the log of take-overs knows it
});
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const events: WorkerEvents = new EventEmitter();
policyEvents(events).on("dispatchPolicy:sweep", ({ repaired }) => tell({ swept: repaired as never }));
events.on("pool:fatalError", () => tell({ unrecorded: true }));
const logger = new Logger((scope) => (level, message) => {
  if (process.env.CHAOS_LOG && level !== "info" && level !== "debug" && !message.includes("on purpose")) {
    console.error(`worker ${orders.place} ${level} ${scope.label} ${message}`);
  }
});

let starts = 0;
const noted = new Map<number, () => void>();
onCommand((command) => {
  if ("noted" in command) noted.get(command.noted)?.();
  if ("hog" in command) void hog(command.hog);
  if ("end" in command) void running.then((runner) => runner.stop());
});

const running = run({
  preset: {
    extends: [WorkerPreset, dispatchPolicyPreset({ policies, ...SETTINGS })],
    worker: { events, concurrentJobs: 8, pollInterval: 1000, logger, ...mode },
  },
  pgPool: pool,
  noHandleSignals: true,
  taskList: {
    work: work.task((payload, helpers) => perform("work", payload as Payload, helpers)),
    call: call.task((payload, helpers) => perform("call", payload as Payload, helpers)),
  },
});
const runner = await running;
tell({ ready: true });
// a pool that shut itself down, since it could not complete a job: as in production, its process ends, and another comes
await runner.promise.catch(() => tell({ met: "shutdown" }));
process.exit(0);

type Helpers = Parameters<Parameters<typeof work.task>[0]>[1];

async function perform(task: TaskName, payload: Payload, helpers: Helpers): Promise<void> {
  const n = starts++;
  await isNoted(n, () => tell({ start: execution(n, task, payload, helpers) }));
  await delay(payload.ms);
  const ok = helpers.job.attempts > payload.failures;
  await isNoted(n, () => tell({ end: { n, ok } }));
  if (!ok) throw new Error("on purpose");
}

function execution(n: number, task: TaskName, { id, account }: Payload, helpers: Helpers): Execution {
  const { job, dispatchPolicy: own } = helpers;
  return {
    ...{ n, id, task, account, job: job.id, attempt: job.attempts },
    // one that is let in later gets another staged id: its flag says which staged job it was
    staged: ticketOf(job)?.stagedId ?? own.stagedId,
    createdAt: job.created_at.getTime(),
    admittedAt: own.admittedAt?.getTime() ?? null,
    lockedAt: job.locked_at!.getTime(),
  };
}

/** Resolves once the conductor has taken note of what `say` says. */
function isNoted(n: number, say: () => void): Promise<void> {
  return new Promise((resolve) => {
    noted.set(n, () => {
      noted.delete(n);
      resolve();
    });
    say();
  });
}

async function hog(ms: number): Promise<void> {
  const clients = Array.from({ length: CONNECTIONS }, async () => {
    const client = await pool.connect();
    await delay(ms);
    client.release();
  });
  await Promise.allSettled(clients);
}
