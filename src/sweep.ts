import type { WithPgClient } from "graphile-worker";
import type { Engine } from "./db/engine.ts";
import { type EventSink, emit } from "./events.ts";
import { release } from "./operate/release.ts";

/** A job that just finished is released by its own process within moments; only what stays is a repair. */
const GRACE_MS = 1000;

export interface SweepContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly partitionInactiveAfterMs: number;
  /** The worker pool that sweeps: by its own heartbeats it judges which others are dead. Without one, none are. */
  readonly poolId?: string | undefined;
}

/** How much was repaired, by kind; every count is zero in a healthy run. */
export type Repaired = {
  /** Worker pools that died. */
  pools: number;
  /** Their jobs, unlocked so that they run again. */
  unlocked: number;
  /** Jobs that run for longer than their policy's `slotTimeout`, whose slots were given back. */
  overdue: number;
  /** Jobs that held a slot and are gone, or failed and wait for their retry. */
  jobs: number;
  counters: number;
  asleep: number;
  blocked: number;
  /** Policies whose count of a bounded backlog was wrong. */
  pending: number;
};

/**
 * One repair pass: jobs of dead worker pools are unlocked; jobs that hang, and in-flight jobs that Graphile Worker no
 * longer has, or that wait for a retry, give their slots back; counters are counted again; partitions asleep over work
 * or blocked on room are woken; jobs that run on are charged for it, where fairness is by work; partitions long unused
 * are forgotten, and limiters that none uses, and overrides that are long over.
 */
export async function sweepOnce(context: SweepContext): Promise<{ repaired: Repaired }> {
  const { engine, withPgClient, events } = context;
  const { pools, jobs: unlocked } = await unlockDead(context);
  const overdue = await releaseOverdue(context);
  const jobs = await releaseMissing(context);
  const counters = await withPgClient((client) => engine.sweepCounters(client));
  const { woken: asleep, unblocked: blocked } = await withPgClient((client) =>
    engine.sweepPartitions(client),
  );
  await withPgClient((client) => engine.sweepWork(client));
  const pending = await withPgClient((client) => engine.sweepPending(client));
  await withPgClient((client) => engine.forgetTakenOver(client));
  await withPgClient((client) => engine.collectPartitions(client, context.partitionInactiveAfterMs));
  await withPgClient((client) => engine.collectLimiters(client, context.partitionInactiveAfterMs));
  await withPgClient((client) => engine.collectOverrides(client));
  const repaired = { pools, unlocked, overdue, jobs, counters, asleep, blocked, pending };
  emit(events, "dispatchPolicy:sweep", { repaired });
  return { repaired };
}

async function unlockDead({ engine, withPgClient, poolId }: SweepContext) {
  if (poolId === undefined) return { pools: 0, jobs: 0 };
  return withPgClient((client) => engine.sweepWorkers(client, poolId));
}

/** One by one, as an operator would: each is in the audit. */
async function releaseOverdue(context: SweepContext): Promise<number> {
  let released = 0;
  for (const jobId of await context.withPgClient(context.engine.sweepOverdue)) {
    released += (await release(context, { jobId, reason: "slotTimeout", by: "sweep" })).changed;
  }
  return released;
}

async function releaseMissing({ engine, withPgClient }: SweepContext): Promise<number> {
  const look = () => withPgClient((client) => engine.sweepInFlight(client, GRACE_MS));
  let found = await look();
  if (found.some((row) => row.marked > 0)) {
    await new Promise((resolve) => setTimeout(resolve, GRACE_MS));
    found = await look();
  }
  const finished = found.flatMap(({ job_id: job, ok, retry }) =>
    job === null ? [] : { job, ok, lagMs: null, attempt: null, retry },
  );
  if (finished.length === 0) return 0;
  const { left_ids: left } = await withPgClient((client) => engine.release(client, finished));
  return finished.length - left.length;
}
