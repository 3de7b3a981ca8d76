import type { WithPgClient } from "graphile-worker";
import type { Engine } from "./db/engine.ts";
import { type EventSink, emit } from "./events.ts";

/** A job that just finished is released by its own process within moments; only what stays is a repair. */
const GRACE_MS = 1000;

export interface SweepContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  readonly partitionInactiveAfterMs: number;
}

/** How much was repaired, by kind; every count is zero in a healthy run. */
export type Repaired = { jobs: number; counters: number; asleep: number; blocked: number };

/**
 * One repair pass: in-flight jobs that Graphile Worker no longer has give their slots back, counters are counted again,
 * partitions asleep over work or blocked on room are woken; partitions long unused are forgotten.
 */
export async function sweepOnce(context: SweepContext): Promise<{ repaired: Repaired }> {
  const { engine, withPgClient, events } = context;
  const jobs = await releaseMissing(context);
  const counters = await withPgClient((client) => engine.sweepCounters(client));
  const { woken: asleep, unblocked: blocked } = await withPgClient((client) =>
    engine.sweepPartitions(client),
  );
  await withPgClient((client) => engine.forgetTakenOver(client));
  await withPgClient((client) => engine.collectPartitions(client, context.partitionInactiveAfterMs));
  const repaired = { jobs, counters, asleep, blocked };
  emit(events, "dispatchPolicy:sweep", { repaired });
  return { repaired };
}

async function releaseMissing({ engine, withPgClient }: SweepContext): Promise<number> {
  const look = () => withPgClient((client) => engine.sweepInFlight(client, GRACE_MS));
  let found = await look();
  if (found.some((row) => row.marked > 0)) {
    await new Promise((resolve) => setTimeout(resolve, GRACE_MS));
    found = await look();
  }
  const missing = found.flatMap((row) => row.job_id ?? []);
  if (missing.length === 0) return 0;
  const finished = missing.map((job) => ({ job, ok: true, lagMs: null, retry: null }));
  return (await withPgClient((client) => engine.release(client, finished))).length;
}
