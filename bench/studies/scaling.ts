// npm run bench -- --scaling: one PostgreSQL and ever more processes. How many jobs a second more and more workers drain, and on
// how many connections. How many jobs a second more and more connections add, one at a time, with notifications and without.
import { setTimeout as delay } from "node:timers/promises";
import { analyzeFilled, MANY } from "../harness/analyze.ts";
import type { Added, AddingOrders, Ask } from "../harness/children/adding.ts";
import type { Noted } from "../harness/children/consumer.ts";
import { type Child, startChild } from "../harness/children.ts";
import { addInCalls, openPolicy, TASK } from "../harness/jobs.ts";
import { stopNotifications } from "../harness/notifications.ts";
import { openSide, type Side, type SideName } from "../harness/sides.ts";
import { quantile } from "../harness/statistics.ts";
import type { Seen } from "./ahead.ts";

export interface ScalingSize {
  /** How many worker processes there are, in ascending order. */
  readonly workers: readonly number[];
  /** Of each of them. */
  readonly slots: number;
  /** How long the jobs run, in milliseconds. */
  readonly lengths: readonly number[];
  /** How many there are at most. */
  readonly jobs: number;
  /** There are fewer if the slots would otherwise run them for longer than this. */
  readonly drainSeconds: number;
  /** How many connections add jobs. */
  readonly connections: readonly number[];
  readonly turns: number;
  readonly secondsPerTurn: number;
  readonly tenants: number;
}

export interface Draining {
  readonly workers: number;
  /** How long the jobs run. */
  readonly ms: number;
  readonly jobs: number;
  /** Jobs that ended a second, from the end of the first quarter to that of the third. */
  readonly pace: number;
  /** The most that the workers had at once. */
  readonly connections: number;
}

/** What becomes of the notification that each add sends. */
export const NOTIFICATIONS = ["a worker listens", "nobody listens", "none sent"] as const;
export type Notifications = (typeof NOTIFICATIONS)[number];

export interface Adding {
  readonly connections: number;
  readonly notifications: Notifications;
  /** Jobs a second. */
  readonly pace: number;
  /** Milliseconds that an add takes. */
  readonly p50: number;
  readonly p95: number;
  /** Jobs that the worker started beside that, a second. */
  readonly started: number;
}

const LOOKS_EVERY_MS = 200;
/** The tables are counted when this part of the jobs has ended, and no later than that. */
const ANALYZED_AT = 0.1;
const ANALYZED_BY = 0.2;
const WORKERS_NAME = "bench_scaling";
/** What a worker may have beside its pool, and what this process has: see docs/production.md#scaling-out. */
const BESIDE_POOL = 5;
const OF_BENCH = 25;
const MOST_PRODUCERS = 2;

export async function measureWorkers(name: SideName, size: ScalingSize): Promise<Draining[]> {
  const side = await openSide(name, { policy: openPolicy });
  await checkConnections(side, size);
  const url = new URL(side.url);
  url.searchParams.set("application_name", WORKERS_NAME);
  const orders = { side: name, url: url.href, tuned: false, slots: size.slots, policies: "open" };
  const crew: Child[] = [];
  const found: Draining[] = [];
  for (const workers of size.workers) {
    while (crew.length < workers) {
      const worker = startChild("seen.ts", orders);
      crew.push(worker);
      await worker.ask<object, Seen>({}); // it runs before the next one starts, so that their starts do not pile up
    }
    for (const ms of size.lengths) {
      console.error(`# scaling: ${name}, workers: ${workers}, jobs of ${ms} ms`);
      found.push(await drain({ name, side, crew }, ms, size));
    }
  }
  for (const worker of crew) await worker.stop();
  await side.close();
  return found;
}

async function checkConnections({ pool }: Side, { workers, slots }: ScalingSize): Promise<void> {
  const most = Math.max(...workers);
  const needed = most * (slots + 1 + BESIDE_POOL) + OF_BENCH;
  const { rows } = await pool.query("select current_setting('max_connections')::int as most");
  if (rows[0].most < needed)
    throw new Error(
      `--scaling starts ${most} workers, which may need ${needed} connections; max_connections of the server is ${rows[0].most}: raise it`,
    );
}

interface Draughts {
  readonly name: SideName;
  readonly side: Side;
  readonly crew: readonly Child[];
}

/** The workers are there when the jobs are added. All are added before a quarter has ended, which is not timed. */
async function drain({ name, side, crew }: Draughts, ms: number, size: ScalingSize): Promise<Draining> {
  const jobs = jobsOf(ms, crew.length, size);
  await side.pool.query("vacuum"); // what the jobs before have left
  await side.pool.query("checkpoint");
  const seen = collect(side, crew);
  const specs = Array.from({ length: jobs }, (_, n) => ({
    identifier: TASK,
    payload: { tenant: `tenant-${n % size.tenants}`, id: n, ms },
  }));
  await addInCalls(side.utils, specs);
  await seen.until(jobs * ANALYZED_AT);
  await analyzeFilled(side.pool, {
    ...{ who: `${name}, workers: ${crew.length}`, many: MANY.default },
    hasTime: async () => (await seen.look()) < jobs * ANALYZED_BY,
  });
  await seen.until(jobs);
  const from = quantile(seen.ends, 0.25);
  const to = quantile(seen.ends, 0.75);
  const timed = seen.ends.filter((at) => at > from && at <= to).length;
  return {
    ...{ workers: crew.length, ms, jobs, connections: seen.connections() },
    pace: (timed / (to - from)) * 1000,
  };
}

function jobsOf(ms: number, workers: number, { slots, jobs, drainSeconds }: ScalingSize): number {
  return ms === 0 ? jobs : Math.min(jobs, Math.round((workers * slots * drainSeconds * 1000) / ms));
}

/** What the workers see from now on, and how many connections they have meanwhile. */
function collect({ pool }: Side, crew: readonly Child[]) {
  const ends: number[] = [];
  let connections = 0;
  async function look(): Promise<number> {
    for (const seen of await Promise.all(crew.map((worker) => worker.ask<object, Seen>({}))))
      ends.push(...seen.ends.map(({ at }) => at));
    const text = "select count(*)::int as n from pg_stat_activity where application_name = $1";
    connections = Math.max(connections, (await pool.query(text, [WORKERS_NAME])).rows[0].n);
    return ends.length;
  }
  async function until(count: number): Promise<void> {
    while ((await look()) < count) await delay(LOOKS_EVERY_MS);
  }
  return { ends, look, until, connections: () => connections };
}

export async function measureProducers(
  name: SideName,
  connections: number,
  notifications: Notifications,
  size: ScalingSize,
): Promise<Adding> {
  const side = await openSide(name, { policy: openPolicy });
  if (notifications === "none sent") await stopNotifications(side.pool);
  const worker =
    notifications === "a worker listens"
      ? startChild("consumer.ts", { side: name, url: side.url, tuned: false, slots: size.slots })
      : undefined;
  const countStarted = async () => (await worker?.ask<object, Noted>({}))?.started ?? 0;
  await countStarted(); // it is there
  const producers = startProducers(side, name, connections, size);
  await addForATurn(side, producers, size); // plans and caches
  await countStarted();
  const took: number[] = [];
  const paces: number[] = [];
  const start = performance.now();
  for (let n = 0; n < size.turns; n++) {
    const turn = await addForATurn(side, producers, size);
    took.push(...turn.flatMap(({ took }) => took));
    paces.push(turn.reduce((sum, { took, ms }) => sum + took.length / ms, 0) * 1000);
  }
  const started = ((await countStarted()) / (performance.now() - start)) * 1000;
  for (const producer of producers) await producer.stop();
  await worker?.stop();
  await side.close();
  const pace = paces.reduce((sum, pace) => sum + pace, 0) / paces.length;
  return {
    ...{ connections, notifications, pace, started },
    ...{ p50: quantile(took, 0.5), p95: quantile(took, 0.95) },
  };
}

/** One process is busy with few connections, so there are two. */
function startProducers(
  { url }: Side,
  side: SideName,
  connections: number,
  { tenants }: ScalingSize,
): Child[] {
  const processes = Math.min(connections, MOST_PRODUCERS);
  return Array.from({ length: processes }, (_, n) =>
    startChild("adding.ts", {
      ...{ side, url, tenants },
      connections: Math.floor((connections + n) / processes),
    } satisfies AddingOrders),
  );
}

/** The tables are analyzed before, as autovacuum would now and then: Graphile Worker's add_job walks one that grew unseen. */
async function addForATurn(
  { pool }: Side,
  producers: readonly Child[],
  { secondsPerTurn: seconds }: ScalingSize,
): Promise<Added[]> {
  await pool.query("analyze");
  return Promise.all(producers.map((producer) => producer.ask<Ask, Added>({ seconds })));
}
