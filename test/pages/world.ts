// The worlds of the pages: a database with policies, jobs that wait, and a worker whose jobs run until the test ends.
import type { ExecutionContext } from "ava";
import type { TaskList } from "graphile-worker";
import type pg from "pg";
import {
  type AnyPolicy,
  definePolicy,
  makePolicyUtils,
  type PolicyOptions,
  type PolicyUtils,
  type Reason,
} from "../../src/index.ts";
import { lentDatabase } from "../helpers/lent.ts";
import { silent } from "../helpers/silent.ts";
import { table, workerTable } from "../helpers/table.ts";
import { until } from "../helpers/until.ts";
import { type Place, startWorker, type WorkerOptions } from "../helpers/worker.ts";

export type Fetch = { readonly endpoint: string; readonly account: string };

/** The policy of the pages. */
export const fetchEndpoint = (
  options: Omit<PolicyOptions<string, undefined, Fetch>, "partitionBy" | "context">,
) =>
  definePolicy("fetch_endpoint", {
    context: (payload: unknown) => payload as Fetch,
    partitionBy: "endpoint",
    ...options,
  });

/** Jobs of one endpoint. */
export const fetches = (endpoint: string, count: number, more: { readonly runAt?: Date } = {}) =>
  Array.from({ length: count }, () => ({
    identifier: "fetch_endpoint" as const,
    payload: { endpoint, account: "acme" },
    ...more,
  }));

export async function emptyWorld(t: ExecutionContext, policies: readonly AnyPolicy[]) {
  const database = await lentDatabase(t);
  const utils = await makePolicyUtils({ pgPool: database.pool, policies, logger: silent });
  t.teardown(() => utils.release());
  return { ...database, utils, database };
}

/** Starts a worker on the database. Its jobs run until the test ends, unless `tasks` says otherwise. */
export async function workerOn(
  t: ExecutionContext,
  database: Place,
  policies: readonly AnyPolicy[],
  {
    slots = 10,
    tasks = {},
    preset = {},
  }: { slots?: number; tasks?: TaskList; preset?: WorkerOptions["preset"] } = {},
): Promise<void> {
  const { promise: end, resolve } = Promise.withResolvers<void>();
  const worker = await startWorker(t, {
    ...{ policies, database, worker: { concurrentJobs: slots }, preset },
    tasks: { fetch_endpoint: () => end, ...tasks },
  });
  t.teardown(async () => {
    resolve();
    await worker.stop();
  });
}

/** Waits until a partition waits for this reason, and a worker ticks if one runs. */
export async function waits(
  utils: PolicyUtils,
  partition: string,
  reason: Reason,
  ticked = true,
): Promise<void> {
  await until(
    `${partition} waits: ${reason}`,
    async () => {
      const it = await utils.explain({ policy: "fetch_endpoint", partition });
      return it.reason === reason && (!ticked || it.tickedBy !== null);
    },
    { seen: async () => (await utils.explain({ policy: "fetch_endpoint", partition })).sentence },
  );
}

/** Waits until a worker runs all that was admitted, and what has ended is released. */
export async function allRun(pool: pg.Pool): Promise<void> {
  await until("all that was admitted runs", async () => {
    const { rows } = await pool.query(
      `select from dispatch_policy.in_flight_jobs f
       where f.worker_id is null
         or not exists (select from graphile_worker.jobs j where j.id = f.job_id and j.locked_at is not null)`,
    );
    return rows.length === 0;
  });
}

/** Makes jobs in flight older, and what their partitions counted of them unless only one job is meant. */
export async function age(pool: pg.Pool, minutes: number, id?: string): Promise<void> {
  const earlier = (its: string) => `${its} - make_interval(mins => ${minutes})`;
  const isAll = id === undefined;
  await workerTable(pool).set({ locked_at: earlier }, isAll ? {} : { id });
  await table(pool, "in_flight_jobs").set({ admitted_at: earlier }, isAll ? {} : { job_id: id });
  if (isAll) await table(pool, "partitions").set({ decayed_at: earlier });
}
