// Groups are part of BullMQ Pro: where there is a limit, each key has a queue of its own, and a worker that takes from it.
import pg from "pg";
import { SLOTS } from "../../harness/children/worker.ts";
import { inCalls } from "../../harness/jobs.ts";
import type { Job, Limit, System } from "../system.ts";

const ALL = "bench";
/** As many as Graphile Worker has by default. */
const ATTEMPTS = 25;

/** What is used of it. It is a dependency of the folder above, which is installed when it is asked for. */
interface BullMq {
  createPostgresBackend: object;
  runMigrations(client: pg.PoolClient): Promise<void>;
  withBackend(backend: object): {
    Queue: new (name: string, options: object) => Queue;
    Worker: new (name: string, perform: (job: { data: Job }) => Promise<void>, options: object) => Worker;
  };
}

interface Queue {
  addBulk(jobs: readonly object[]): Promise<unknown>;
  setGlobalConcurrency(max: number): Promise<unknown>;
  close(): Promise<void>;
}

interface Worker {
  on(event: "error", heard: (error: Error) => void): void;
  waitUntilReady(): Promise<unknown>;
  close(force: boolean): Promise<void>;
}

async function load() {
  const bullmq: BullMq = await import("bullmq" as string);
  return { ...bullmq.withBackend(bullmq.createPostgresBackend), runMigrations: bullmq.runMigrations };
}

export const bullmq: System = {
  name: "bullmq",
  settings: {
    queues: "one per key where there is a limit",
    concurrency: "of each queue",
    removeOnComplete: true,
  },
  cannot: () => undefined,
  async open({ url, keys, limit }) {
    const { Queue, runMigrations } = await load();
    const pool = poolOf(url, 10);
    const client = await pool.connect();
    await runMigrations(client);
    client.release();
    const names = queuesOf(keys, limit);
    const queues = new Map(names.map((name) => [name, new Queue(name, { connection: pool })]));
    for (const queue of queues.values())
      if (limit.atOnce !== undefined) await queue.setGlobalConcurrency(limit.atOnce);
    return {
      async add(jobs) {
        for (const [name, own] of Map.groupBy(jobs, ({ key }) => (isLimited(limit) ? key : ALL)))
          await inCalls(own, (some) => queues.get(name)!.addBulk(some.map(specOf)));
      },
      async stop() {
        for (const queue of queues.values()) await queue.close();
        await pool.end();
      },
    };
  },
  async start({ url, keys, limit, silentMs }, task) {
    const { Worker } = await load();
    const { atOnce, perSecond } = limit;
    const names = queuesOf(keys, limit);
    const pool = poolOf(url, names.length + SLOTS + 1); // each worker keeps one to listen on
    const options = {
      connection: pool,
      concurrency: atOnce ?? SLOTS,
      ...recovery(silentMs),
      ...(perSecond === undefined ? {} : { limiter: { max: perSecond, duration: 1000 } }),
    };
    const workers = names.map((name) => new Worker(name, ({ data }) => task(data), options));
    for (const worker of workers) worker.on("error", (error) => console.error(`# bullmq: ${error.message}`));
    await Promise.all(workers.map((worker) => worker.waitUntilReady()));
    return async () => {
      await Promise.all(workers.map((worker) => worker.close(true)));
      await pool.end();
    };
  },
};

/** A job of a dead worker has stalled: its lock runs out, one pass marks it, and the next takes it back. */
function recovery(silentMs: number | undefined): object {
  if (silentMs === undefined) return {};
  return { lockDuration: silentMs, stalledInterval: silentMs / 2, maxStalledCount: ATTEMPTS };
}

const isLimited = ({ atOnce, perSecond }: Limit): boolean => (atOnce ?? perSecond) !== undefined;

const queuesOf = (keys: readonly string[], limit: Limit): readonly string[] =>
  isLimited(limit) ? keys : [ALL];

/** A pool that is passed in must find its tables by itself: https://docs.bullmq.io/guide/postgresql */
function poolOf(connectionString: string, max: number): pg.Pool {
  const pool = new pg.Pool({ connectionString, max, options: "-c search_path=bullmq" });
  pool.on("error", () => {});
  pool.setMaxListeners(0); // each queue listens for its errors
  return pool;
}

const specOf = (data: Job) => ({ name: ALL, data, opts: { removeOnComplete: true } });
