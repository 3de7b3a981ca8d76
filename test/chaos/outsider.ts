// A worker without the package, as it runs beside others while a deployment goes through, and after an uninstall. It knows
// no limits: it starts jobs that were added past their policies, and frees no slots.
import { EventEmitter } from "node:events";
import { Logger, run, type WorkerEvents } from "graphile-worker";
import pg from "pg";
import { orders, stopAtEnd, tell } from "./member.ts";
import { perform } from "./perform.ts";
import type { Payload } from "./world.ts";

const pool = new pg.Pool({ connectionString: orders.url, max: 4 });
pool.on("error", () => {});
pool.on("connect", (client) => client.on("error", () => {}));
const events: WorkerEvents = new EventEmitter();
events.on("pool:create", ({ workerPool }) => tell({ pool: workerPool.id }));
events.on("worker:create", ({ worker }) => tell({ pool: worker.workerId }));
events.on("pool:fatalError", () => tell({ unrecorded: true }));
const running = run({
  pgPool: pool,
  concurrency: 4,
  pollInterval: 1000,
  noHandleSignals: true,
  events,
  logger: new Logger(() => () => {}),
  taskList: {
    work: (payload, { job }) => perform("work", payload as Payload, job, null),
    call: (payload, { job }) => perform("call", payload as Payload, job, null),
    render: (payload, { job }) => perform("render", payload as Payload, job, null),
  },
});
stopAtEnd(running);
const runner = await running;
tell({ ready: true });
await runner.promise.catch(() => tell({ met: "shutdown" }));
process.exit(0);
