import type { WithPgClient } from "graphile-worker";
import { readEvents } from "../admit/read-events.ts";
import { sleep } from "../admit/sleeper.ts";
import type { Engine } from "../db/engine.ts";
import { inHalves } from "../db/halves.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import type { Settings } from "../settings.ts";

/** A finished job's own process releases it within moments. A slot that is still occupied after this time needs repair. */
const GRACE_MS = 1000;

/** After how many milliseconds sweeps delete unused partitions and limiters, audit rows, and minutes. */
export type Ages = Pick<Settings, "partitionInactiveAfterMs" | "keepAuditForMs" | "metricsRetentionMs">;

export interface SweepContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly events: EventSink;
  /** When a sweep deletes what. */
  readonly ages: Ages;
  /** The worker pool that sweeps. Only a pool that heartbeats itself may judge that others are dead. */
  readonly poolId?: string | undefined;
  readonly logger: Pick<Logger, "warn">;
  /** Cuts the wait for late ends short. Slots that would have been found after it stay for the next sweep. */
  readonly signal?: AbortSignal | undefined;
}

/** How much a sweep repaired, by kind. Every count is zero in a healthy run. */
export type Repaired = {
  /** Worker pools that died. */
  pools: number;
  /** Their jobs, unlocked so that they run again. */
  unlocked: number;
  /** Jobs that run for longer than their policy's `slotTimeout`, whose slots were freed. */
  overdue: number;
  /** Jobs that occupied a slot although they are gone, or failed and wait for their retry. */
  jobs: number;
  /** Limiters whose count of jobs in flight was wrong. */
  counters: number;
  /** Partitions that had due jobs, but no time to be claimed. */
  asleep: number;
  /** Partitions that waited for a limiter although it has room. */
  blocked: number;
  /** Policies whose count of a bounded backlog was wrong. */
  pending: number;
};

const NOTHING: Readonly<Repaired> = {
  pools: 0,
  unlocked: 0,
  overdue: 0,
  jobs: 0,
  counters: 0,
  asleep: 0,
  blocked: 0,
  pending: 0,
};

/** A step of a sweep that failed, by name, and why. */
export interface SweepFailure {
  readonly step: string;
  readonly error: Error;
}

/**
 * One repair pass.
 *
 * - Jobs of dead worker pools are unlocked.
 * - The newest definition that a live worker has is put in force.
 * - Slots are freed of jobs that hang, that Graphile Worker no longer has, or that wait for a retry.
 * - Counters are counted again, and times that a wrong clock has set too far ahead are lowered.
 * - Partitions are woken that have jobs but no time to be claimed, or that wait for a limiter with room.
 * - Jobs that have expired are dropped, also of partitions that no pass looks at.
 * - Job keys that were remembered for long enough are forgotten.
 * - Jobs that still run are charged for it, if fairness is by work.
 * - What passes and releases have done is added up.
 * - The history of jobs whose end nobody saw is ended, and they are counted in their groups.
 * - Unused partitions and limiters, overrides that ended long ago, old audit rows, minutes, load and history are deleted.
 *
 * If a step fails, the others are still done, and `failed` names it.
 */
export async function sweepOnce(
  context: SweepContext,
): Promise<{ repaired: Repaired; failed: readonly SweepFailure[] }> {
  const { engine, withPgClient, events } = context;
  const { partitionInactiveAfterMs: inactiveAfterMs, keepAuditForMs, metricsRetentionMs } = context.ages;
  const repaired: Repaired = { ...NOTHING };
  const failed: SweepFailure[] = [];
  const fails = (step: string, error: unknown) => {
    failed.push({ step, error: error instanceof Error ? error : new Error(String(error)) });
  };
  const collectOld = (old: Parameters<Engine["collectOld"]>[1], keptForMs?: number) =>
    untilNone(() => withPgClient((client) => engine.collectOld(client, old, keptForMs)));
  const steps: Record<string, () => Promise<unknown>> = {
    "dead worker pools": async () => {
      const { pools, jobs } = await unlockDead(context);
      Object.assign(repaired, { pools, unlocked: jobs });
    },
    definitions: () => followWorkers(context),
    "jobs past their slotTimeout": async () => {
      repaired.overdue = await releaseOverdue(context, fails);
    },
    "slots that nobody frees": async () => {
      repaired.jobs = await releaseMissing(context, fails);
    },
    counters: async () => {
      repaired.counters = await withPgClient(engine.sweepCounters);
    },
    "times ahead": () => withPgClient(engine.sweepClock),
    partitions: async () => {
      const { woken, unblocked } = await withPgClient(engine.sweepPartitions);
      Object.assign(repaired, { asleep: woken, blocked: unblocked });
    },
    "work of running jobs": () => withPgClient(engine.sweepWork),
    "expired jobs": () => untilNone(() => withPgClient(engine.sweepExpired)),
    "pending jobs": async () => {
      repaired.pending = await withPgClient(engine.sweepPending);
    },
    "jobs replaced while they were parked": () => withPgClient(engine.sweepReplaced),
    "copied jobs": () => withPgClient(engine.forgetCopied),
    "job keys that are over": () => untilNone(() => withPgClient(engine.forgetKeys)),
    "unused partitions": () => withPgClient((client) => engine.collectPartitions(client, inactiveAfterMs)),
    "unused limiters": () => withPgClient((client) => engine.collectLimiters(client, inactiveAfterMs)),
    "overrides that are over": () => withPgClient(engine.collectOverrides),
    "old audit rows": () => collectOld("audit", keepAuditForMs),
    activity: () => foldActivity(context),
    "old minutes": () => collectOld("minutes", metricsRetentionMs),
    "old load": () => collectOld("load"),
    events: () => readEvents(context),
    "history of jobs that are gone": () => closeHistory(context),
    "groups of jobs that are gone": () => closeGroups(context),
    "old history": async () => {
      for (const table of ["history", "waits", "events"] as const) await collectOld(table);
    },
    "count of repairs": async () => {
      if (Object.values(repaired).some((n) => n > 0))
        await withPgClient((client) => engine.countRepairs(client, repaired));
    },
  };
  for (const [step, run] of Object.entries(steps)) await run().catch((error) => fails(step, error));
  emit(events, "dispatchPolicy:sweep", { repaired, failed: failed.map(({ step }) => step) });
  return { repaired, failed };
}

/**
 * The same, but a failed step is an error.
 *
 * @throws {AggregateError} naming the steps that failed, after all others were done
 */
export async function sweepFully(context: SweepContext): Promise<{ repaired: Repaired }> {
  const { repaired, failed } = await sweepOnce(context);
  if (failed.length === 0) return { repaired };
  const what = failed.map(({ step, error }) => `${step} (${error.message})`).join("; ");
  throw new AggregateError(
    failed.map(({ error }) => error),
    `sweep: ${failed.length} of its steps failed, the others are done: ${what}`,
  );
}

/** How many rows one transaction folds. */
const FOLDED_AT_ONCE = 2000;

/** Adds up what passes and releases have done since somebody did so last. */
export async function foldActivity({
  engine,
  withPgClient,
}: Pick<SweepContext, "engine" | "withPgClient">): Promise<void> {
  while ((await withPgClient((client) => engine.foldActivity(client, FOLDED_AT_ONCE))) === FOLDED_AT_ONCE);
}

/** A step that leaves some rows for its next transaction. */
async function untilNone(step: () => Promise<number>): Promise<void> {
  while ((await step()) > 0);
}

/** Reads all history that has not ended, page by page. */
async function closeHistory({ engine, withPgClient }: SweepContext): Promise<void> {
  let place: Awaited<ReturnType<Engine["closeHistory"]>> = { policy_id: 0, staged_id: "0" };
  while (place.staged_id) {
    const from = place;
    place = await withPgClient((client) => engine.closeHistory(client, from));
  }
}

/** Reads all jobs of groups that have not ended, page by page. */
async function closeGroups({ engine, withPgClient }: SweepContext): Promise<void> {
  let place: Awaited<ReturnType<Engine["closeGroups"]>> = { staged_id: "0" };
  while (place.staged_id) {
    const after = place.staged_id;
    place = await withPgClient((client) => engine.closeGroups(client, after));
  }
}

type Fails = (step: string, error: unknown) => void;

async function unlockDead({ engine, withPgClient, poolId }: SweepContext) {
  if (poolId === undefined) return { pools: 0, jobs: 0 };
  return withPgClient((client) => engine.sweepWorkers(client, poolId));
}

/** Puts the newest definition that a live worker has in force, also when the last worker of a newer one has ended. */
export async function followWorkers({
  engine,
  withPgClient,
  logger,
}: Pick<SweepContext, "engine" | "withPgClient" | "logger">): Promise<void> {
  for (const { policy, version, version_before } of await withPgClient(engine.sweepDefinitions))
    logger.warn(
      `Version ${version} of policy "${policy}" is in force now, because it is the newest that a live worker has. ` +
        `Before it was version ${version_before}`,
    );
}

/** Releases slots one by one, as an operator would, so that each is in the audit. */
async function releaseOverdue(context: SweepContext, fails: Fails): Promise<number> {
  let released = 0;
  const { engine, withPgClient } = context;
  for (const slot of await withPgClient(engine.sweepOverdue)) {
    try {
      const why = { reason: "slotTimeout", by: "sweep" };
      released += (await withPgClient((client) => engine.releaseSlots(client, slot, why))).changed;
    } catch (error) {
      fails(`release of job ${slot.jobId}, past its slotTimeout`, error);
    }
  }
  return released;
}

async function releaseMissing(context: SweepContext, fails: Fails): Promise<number> {
  const look = () => context.withPgClient((client) => context.engine.sweepInFlight(client, GRACE_MS));
  let found = await look();
  if (found.some((row) => row.marked > 0)) {
    await sleep(GRACE_MS, context.signal);
    if (!context.signal?.aborted) found = await look();
  }
  return releaseFound(context, found, fails);
}

/** Frees the slots of jobs that a verb has just removed from Graphile Worker, or postponed there. */
export async function releaseMarked({ engine, withPgClient }: Pick<SweepContext, "engine" | "withPgClient">) {
  const found = await withPgClient((client) => engine.sweepInFlight(client, GRACE_MS, true));
  return releaseFound({ engine, withPgClient }, found, (_, error) => {
    throw error;
  });
}

async function releaseFound(
  { engine, withPgClient }: Pick<SweepContext, "engine" | "withPgClient">,
  found: Awaited<ReturnType<Engine["sweepInFlight"]>>,
  fails: Fails,
): Promise<number> {
  const finished = found.flatMap(({ job_id: job, admission, attempt, ok, retry }) =>
    job === null ? [] : { job, admission, attempt, ok, lagMs: null, retry },
  );
  if (finished.length === 0) return 0;
  let released = 0;
  await inHalves(
    finished,
    async (part) => {
      const { left_ids: left } = await withPgClient((client) => engine.release(client, part));
      released += part.length - left.length;
    },
    ({ job }, error) => fails(`release of job ${job}, which is gone`, error),
  );
  return released;
}
