// Our LISTEN on Graphile Worker's connection, however soon a worker pool gives that up. pg warns if statements queue up.
import { EventEmitter } from "node:events";
import test from "ava";
import { Logger, runTaskList, type WorkerEvents } from "graphile-worker";
import pg from "pg";
import { dispatchPolicyPreset } from "../../src/index.ts";
import { testDatabase } from "../helpers/database.ts";
import { until } from "../helpers/until.ts";

const warnings: string[] = [];
process.on("warning", ({ message }) => warnings.push(message));

type Client = pg.PoolClient & { connection: { stream: NodeJS.ReadableStream }; processID: number };

/** From a moment on the server's answers do not arrive, until the connection is given up. */
const MOMENTS: Record<string, (client: Client, then: () => void) => void> = {
  "before Graphile Worker's LISTEN is answered": (_, then) => setImmediate(then),
  "before ours is answered": (client, then) => client.once("drain", then),
  "once it listens": (client, then) => client.once("drain", () => client.once("drain", then)),
};

for (const [moment, at] of Object.entries(MOMENTS))
  test.serial(`a pool that stops ${moment} leaves a connection that listens to nothing`, async (t) => {
    const { url } = await testDatabase(t);
    const pgPool = new pg.Pool({ connectionString: url, max: 4 });
    t.teardown(() => pgPool.end());
    const logger = new Logger(() => (level, message) => level === "error" && t.fail(message));
    const events = new EventEmitter() as WorkerEvents;
    const pids: number[] = [];
    events.on("pool:listen:success", ({ client: given, workerPool }) => {
      const client = given as Client;
      const { stream } = client.connection;
      at(client, () => {
        stream.pause();
        events.once("pool:listen:release", () => setImmediate(() => stream.resume()));
        void workerPool.gracefulShutdown();
      });
      pids.push(client.processID);
    });
    const preset = { extends: [dispatchPolicyPreset({ policies: [] })], worker: { logger } };
    await runTaskList({ preset, events }, { nothing: () => {} }, pgPool).promise;
    t.is(pids.length, 1);
    await until("all connections are back", () => pgPool.idleCount === pgPool.totalCount);
    // idle connections are given out last in, first out: look at each
    const clients = await Promise.all(Array.from({ length: pgPool.totalCount }, () => pgPool.connect()));
    const channels = new Map<number, string[]>();
    for (const client of clients) {
      const { rows } = await client.query(
        "select pg_backend_pid() pid, array(select pg_listening_channels()) channels",
      );
      channels.set(rows[0].pid, rows[0].channels);
      client.release();
    }
    t.deepEqual(channels.get(pids[0]!), []);
    t.deepEqual(warnings, []);
  });
