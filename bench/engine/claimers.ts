// Several sessions tick one policy at once, while another ends what they admit: how many jobs they admit a second, and what
// the database had to undo for it. Without a gate that binds, and with three at once of each partition. The sessions of
// one shard compete for everything; those of four shards have partitions of their own.
import { setTimeout as delay } from "node:timers/promises";
import pg from "pg";
import { say } from "./timing.ts";
import { type BenchGate, jobsOf, keys, makeWorld, ticksOn, type World } from "./world.ts";

const PARTITIONS = 1000;
const JOBS = Number(process.env.JOBS ?? 100_000);
const SECONDS = Number(process.env.SECONDS ?? 10);
const EACH_TICK = 5;
const IDLE_MS = 2;
const SERIALIZATION_FAILURE = "40001";
const DEADLOCK = "40P01";
const LOCK_NOT_AVAILABLE = "55P03";

interface Competition {
  readonly sessions: number;
  readonly shards: readonly string[];
}

/** What the sessions have done so far. */
interface Progress {
  admitted: number;
  /** Codes of errors. */
  readonly failures: string[];
  isOver(): boolean;
}

for (const max of [1e6, 3]) {
  for (const [sessions, count] of [
    [1, 1],
    [2, 1],
    [4, 1],
    [20, 1],
    [1, 4],
    [2, 4],
    [4, 4],
  ] as const) {
    const shards = Array.from({ length: count }, (_, place) => `shard-${place}`);
    const world = await worldOf(shards, max);
    const gate = max === 3 ? "a gate that binds" : "no gate that binds";
    say(`${sessions} sessions, ${count} shards, ${gate}`, await compete(world, { sessions, shards }));
    await world.close();
  }
}

async function worldOf(shards: readonly string[], max: number): Promise<World> {
  const concurrency: BenchGate = { gate: "concurrency", kind: "concurrency", scope: "partition", max };
  const names = keys(PARTITIONS);
  const shardOf = (name: string) => shards[names.indexOf(name) % shards.length]!;
  const world = await makeWorld({ gates: [concurrency], batch: EACH_TICK, shardOf });
  await world.stage(jobsOf(names, JOBS / PARTITIONS));
  await world.routeAll();
  await world.settle();
  return world;
}

/** Until all jobs are admitted, or the time is over. */
async function compete(world: World, { sessions, shards }: Competition) {
  const clients = Array.from({ length: sessions }, () => new pg.Client({ connectionString: world.url }));
  for (const client of clients) await client.connect();
  const before = await readCounters(world);
  const start = performance.now();
  const progress: Progress = {
    admitted: 0,
    failures: [],
    isOver: () => progress.admitted >= JOBS || performance.now() > start + SECONDS * 1000,
  };
  const ticking = clients.map((client, session) => {
    const own = shards.filter((_, place) => place % sessions === session % shards.length);
    return tick(ticksOn(client, world.task), own, progress);
  });
  await Promise.all([...ticking, endJobs(world, progress)]);
  const ms = performance.now() - start;
  for (const client of clients) await client.end(); // which tells their counts
  const after = await readCounters(world);
  return {
    admittedPerSecond: Math.round((progress.admitted / ms) * 1000),
    serializationFailures: count(progress, SERIALIZATION_FAILURE),
    lockTimeouts: count(progress, LOCK_NOT_AVAILABLE),
    deadlocks: after.deadlocks - before.deadlocks,
    rollbacks: after.rollbacks - before.rollbacks,
    transactionsPerJob: ((after.transactions - before.transactions) / progress.admitted).toPrecision(3),
  };
}

async function tick(
  { route, admit }: ReturnType<typeof ticksOn>,
  shards: readonly string[],
  progress: Progress,
): Promise<void> {
  while (!progress.isOver()) {
    let admitted = 0;
    for (const shard of shards) {
      await orFailure(route(), progress);
      const pass = await orFailure(admit(undefined, shard), progress);
      admitted += pass?.admitted ?? 0;
    }
    progress.admitted += admitted;
    if (admitted === 0) await delay(IDLE_MS);
  }
}

async function orFailure<T>(step: Promise<T>, { failures }: Progress): Promise<T | undefined> {
  try {
    return await step;
  } catch (error) {
    const { code = "" } = error as { code?: string };
    if (![SERIALIZATION_FAILURE, DEADLOCK, LOCK_NOT_AVAILABLE].includes(code)) throw error;
    failures.push(code);
    return undefined;
  }
}

async function endJobs(world: World, progress: Progress): Promise<void> {
  while (!progress.isOver()) if ((await world.endAll()) === 0) await delay(IDLE_MS);
}

function count({ failures }: Progress, code: string): number {
  return failures.filter((failure) => failure === code).length;
}

/** Of the world's database, since it was made. */
async function readCounters(world: World) {
  await world.query("select pg_stat_force_next_flush()");
  const [counters] = await world.query<Record<"transactions" | "rollbacks" | "deadlocks", number>>(
    `select (xact_commit + xact_rollback)::float8 as transactions, xact_rollback::float8 as rollbacks,
       deadlocks::float8 as deadlocks
     from pg_stat_database where datname = current_database()`,
  );
  return counters!;
}
