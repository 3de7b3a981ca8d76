// 2,000 partitions of one job a second each, all with jobs waiting: how many of these 2,000 a second the tick loop admits,
// and how busy that keeps it. What it admits has ended a moment later, as with jobs that take no time.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { dispatchPolicyPreset, runTickLoop } from "../../src/index.ts";
import { logger } from "../harness/logger.ts";
import { onProcessor } from "../harness/usage.ts";
import { say } from "./timing.ts";
import { jobsOf, keys, makeWorld, type World } from "./world.ts";

const PARTITIONS = Number(process.env.PARTITIONS ?? 2000);
const SECONDS = Number(process.env.SECONDS ?? 30);
/** The throttles are full at first, and give more than their rate. */
const WARM_UP_SECONDS = 3;
/** More than the throttles let go in time. */
const SPARE_SECONDS = 5;
const ENDS_WITHIN_MS = 10;

for (const partitionBatchSize of [50, 200]) {
  const world = await makeWorld({
    gates: [{ gate: "throttle", kind: "throttle", scope: "partition", rate: 1, per: 1 }],
  });
  await world.stage(jobsOf(keys(PARTITIONS), WARM_UP_SECONDS + SECONDS + SPARE_SECONDS));
  await world.routeAll();
  await world.settle();

  const loop = startLoop(world, partitionBatchSize);
  await endJobs(world, WARM_UP_SECONDS);
  const before = loop.used();
  const start = performance.now();
  const ended = await endJobs(world, SECONDS);
  const ms = performance.now() - start;
  const after = loop.used();
  await loop.stop();
  await world.close();

  const share = (part: number) => `${(part * 100).toFixed(1)} %`;
  const used = (what: keyof typeof after) => after[what] - before[what];
  say(`${PARTITIONS} partitions of one job a second, up to ${partitionBatchSize} a tick`, {
    admittedPerSecond: Math.round((ended / ms) * 1000),
    ofTheRate: share(((ended / ms) * 1000) / PARTITIONS),
    statementsPerSecond: Math.round((used("statements") / ms) * 1000),
    busy: share(used("inStatements") / ms),
    busyOnProcessor: share(used("onProcessor") / ms),
  });
}

/** The loop as a process of its own runs it, on connections that are watched. */
function startLoop({ url, task }: World, partitionBatchSize: number) {
  const pgPool = new pg.Pool({ connectionString: url, max: 4, idleTimeoutMillis: 0 });
  const clients = new Set<pg.PoolClient>();
  const taken = new Map<pg.PoolClient, number>();
  let statements = 0;
  let inStatements = 0;
  pgPool.on("error", () => {});
  pgPool.on("connect", (client) => clients.add(client));
  pgPool.on("acquire", (client) => taken.set(client, performance.now()));
  pgPool.on("release", (_error, client) => {
    statements++;
    inStatements += performance.now() - taken.get(client)!;
  });
  const over = new AbortController();
  const preset = dispatchPolicyPreset({ policies: [], partitionBatchSize });
  const running = runTickLoop({ pgPool, preset, logger, policy: task, signal: over.signal });
  return {
    /** Milliseconds since it began: from a statement to its answer, and of the database's backends. */
    used: () => ({
      statements,
      inStatements,
      onProcessor: [...clients].reduce((sum, client) => sum + onProcessor(pidOf(client)), 0),
    }),
    async stop() {
      over.abort();
      await running;
      await pgPool.end();
    },
  };
}

function pidOf(client: pg.PoolClient): number {
  return (client as pg.PoolClient & { processID: number }).processID;
}

/** Ends what is in flight again and again, so long. Gives how many jobs that were. */
async function endJobs(world: World, seconds: number): Promise<number> {
  const until = performance.now() + seconds * 1000;
  let ended = 0;
  while (performance.now() < until) {
    ended += await world.endAll();
    await delay(ENDS_WITHIN_MS);
  }
  return ended;
}
