import type { WithPgClient } from "graphile-worker";
import { storableText } from "../checks/options.ts";
import { counted } from "../counted.ts";
import type { Admission, Drop, Engine, KeylessJob, Queryable } from "../db/engine.ts";
import { inHalves, isOfEntries } from "../db/halves.ts";
import { isBusy } from "../db/outage.ts";
import { errorText } from "../error-text.ts";
import { type EventSink, emit } from "../events.ts";
import type { Logger } from "../log.ts";
import { type AnyPolicy, policyDefinition, resolveJob } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";

/**
 * The most arrivals that a tick routes before its pass. Jobs go on, however many arrive. A batch takes
 * about a quarter of a second, if each is of a new partition.
 */
const ROUTE_BATCH = 5000;
const KEY_BATCH = 1000;

export interface TickContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly registry: Registry;
  readonly events: EventSink;
  /** For jobs that are quarantined, and a line for each pass. */
  readonly logger: Pick<Logger, "warn" | "debug">;
  readonly partitionBatchSize: number;
}

export interface TickRequest {
  readonly policy: string;
  /** Null: every shard. */
  readonly shard: string | null;
  /** Null: the database's clock. */
  readonly now: Date | null;
  /** Whether the ahead bound applies: jobs are kept just ahead of the workers. */
  readonly bounded: boolean;
}

/** The result of one admission pass. */
export interface TickResult {
  /** Partitions that the pass claimed. */
  claimed: number;
  admitted: number;
  /** How many partitions kept due jobs, by reason. Each counts once, for the gate it waits for first. */
  denied: Record<string, number>;
  /** Jobs that were dropped since the previous pass, by `maxPending`, `whenBusy` or `uniqueFor`, or because they expired. */
  dropped: number;
  durationMs: number;
  /** When a job may be admitted next. Null: not before something changes. */
  nextEligibleAt: Date | null;
}

/** A pass, with what its caller needs to decide when to repeat it. */
export interface Pass extends TickResult {
  /** Those of the dropped jobs that a healthy policy does not drop: all but those whose keys are remembered. */
  readonly lost: number;
  /** Whether there is more to do: the caller repeats the pass at once. */
  readonly more: boolean;
  /** Whether it routed a full batch: arrivals may be left, and among them a job that may go. */
  readonly full: boolean;
  /** Whether another pass was at work. It may have seen less than this one would have. */
  readonly busy: boolean;
  /** Whether anything was routed. If so, a partition may belong to a new shard. */
  readonly routed: boolean;
  /** Whether the pass changed anything. If not, a caller that repeats it slows down. */
  readonly progress: boolean;
  /** Milliseconds by the database's clock until a job may be admitted. Null: not before something changes. */
  readonly nextInMs: number | null;
  /** No job goes until one ends. "workers": because the workers have enough to do for a while. */
  readonly saturated: "gate" | "workers" | null;
}

/**
 * One tick: works out missing keys, routes arrivals, admits. Few arrivals are routed in the transaction that admits. Else each
 * step is one of its own.
 */
export async function tickOnce(context: TickContext, request: TickRequest): Promise<Pass> {
  const started = performance.now();
  const policy = context.registry.policies.find((one) => one.identifier === request.policy);
  const isKeyed = policy && !policyDefinition(policy).resolvesInSql;
  let keyed = isKeyed ? await keyJobs(context, policy) : 0;
  let admission = request.bounded ? await admit(context, request, true) : undefined;
  let routed = admission?.routed ?? 0;
  if (!admission || admission.routed === null) {
    routed = await route(context, request);
    if (admission !== null) admission = await admit(context, request, false); // null: it was busy
  }
  // its definition needed JavaScript before, or the jobs were another policy's
  if (policy && !isKeyed && admission?.to_key) keyed = await keyJobs(context, policy);
  const { drops, more: unread } = admission?.to_tell
    ? await consumeEvents(context, request.policy)
    : { drops: [], more: false };
  const saturated = admission?.saturated ?? null;
  const busy = admission === null || routed < 0;
  const full = routed >= ROUTE_BATCH;
  const isDue = admission?.to_route || (admission?.next_in_ms ?? Number.POSITIVE_INFINITY) <= 0;
  const pass: Pass = {
    claimed: admission?.claimed ?? 0,
    admitted: admission?.admitted ?? 0,
    denied: admission?.denied ?? {},
    dropped: jobsOf(drops),
    lost: jobsOf(drops.filter(({ reason }) => reason !== "unique")),
    durationMs: performance.now() - started,
    nextEligibleAt: finiteDate(admission?.next_eligible_at ?? null),
    nextInMs: admission?.next_in_ms ?? null,
    saturated,
    busy,
    full,
    more: busy || keyed > 0 || full || unread || (saturated === null && isDue),
    routed: routed !== 0,
    progress:
      keyed > 0 ||
      routed > 0 ||
      drops.length > 0 ||
      (admission !== null && hasMoved(admission, context.partitionBatchSize)),
  };
  reportPass(context, request, pass, admission?.quarantined ?? 0);
  tellOfDrops(context.events, request.policy, drops);
  return pass;
}

/**
 * Whether a pass changed anything. If it claimed all that it could, and neither admitted nor denied anything, then other
 * sessions have locked the due jobs. A pass that follows at once would find the same.
 */
function hasMoved({ claimed, served, admitted, quarantined, denied }: Admission, most: number): boolean {
  return claimed >= most || served + admitted + quarantined > 0 || Object.keys(denied).length > 0;
}

/** An error here says nothing of the pass, which is committed. The next tick reads the same again. */
async function consumeEvents(
  { withPgClient, engine, logger }: TickContext,
  policy: string,
): Promise<{ drops: readonly Drop[]; more: boolean }> {
  try {
    return await withPgClient((client) => engine.consumeEvents(client, policy, true));
  } catch (error) {
    logger.warn(
      `Policy "${policy}": what happened to its jobs could not be read, so its history, its job groups and its counts are late: ` +
        errorText(error),
      { error, policy },
    );
    return { drops: [], more: false };
  }
}

function jobsOf(drops: readonly Drop[]): number {
  return drops.reduce((sum, { jobs }) => sum + jobs, 0);
}

function tellOfDrops(events: EventSink, policy: string, drops: readonly Drop[]): void {
  for (const { partition, reason, jobs: count } of drops) {
    if (reason === "expired") emit(events, "dispatchPolicy:expire", { policy, partition, count });
    else emit(events, "dispatchPolicy:drop", { policy, partition, reason, count });
  }
}

/** One event per transition, with its numbers, and a line for whoever traces the pass. A pass without work says nothing. */
function reportPass(
  { events, logger }: Pick<TickContext, "events" | "logger">,
  { policy, shard }: TickRequest,
  pass: Pass,
  quarantined: number,
): void {
  if (pass.claimed === 0) return;
  const { claimed, admitted, denied, durationMs } = pass;
  emit(events, "dispatchPolicy:tick", { policy, shard, claimed, admitted, denied, durationMs });
  if (admitted > 0) emit(events, "dispatchPolicy:admit", { policy, shard, count: admitted });
  for (const [reason, partitions] of Object.entries(denied)) {
    emit(events, "dispatchPolicy:deny", { policy, shard, reason, partitions });
  }
  logger.debug(sentenceOf({ policy, shard }, pass), { policy, shard, claimed, admitted, denied, durationMs });
  if (quarantined === 0) return;
  emit(events, "dispatchPolicy:quarantine", { policy, count: quarantined });
  logger.warn(
    `Policy "${policy}" quarantined ${counted(quarantined, "job")}, because Graphile Worker refused. ` +
      "They are tried again later. Correct or remove them: staged_jobs.error says what is wrong with each",
  );
}

/**
 * "Pass of policy "p", shard a: claimed 3 partitions, admitted 5 jobs, denied 1 partition (throttle_empty: 1), in 4.2 ms".
 */
function sentenceOf({ policy, shard }: Pick<TickRequest, "policy" | "shard">, pass: Pass): string {
  const where = shard === null ? "every shard" : `shard ${shard}`;
  const denied = Object.entries(pass.denied);
  const partitions = denied.reduce((sum, [, n]) => sum + n, 0);
  const why = denied.length > 0 ? ` (${denied.map(([reason, n]) => `${reason}: ${n}`).join(", ")})` : "";
  return (
    `Pass of policy "${policy}", ${where}: claimed ${counted(pass.claimed, "partition")}, ` +
    `admitted ${counted(pass.admitted, "job")}, denied ${counted(partitions, "partition")}${why}, ` +
    `in ${pass.durationMs.toFixed(1)} ms`
  );
}

/** Routes a batch. Returns how many rows it routed. -1: another router is at work. */
async function route(context: TickContext, request: TickRequest): Promise<number> {
  const step = context.withPgClient((client) =>
    context.engine.route(client, { ...request, max: ROUTE_BATCH }),
  );
  return (await orBusy(step)) ?? -1;
}

function admit(context: TickContext, request: TickRequest, routes: boolean) {
  const step = context.withPgClient((client) =>
    context.engine.admit(client, { ...request, claim: context.partitionBatchSize, routes }),
  );
  return orBusy(step);
}

/** Null if a lock timed out: the step is busy, and is tried again later. */
async function orBusy<T>(step: Promise<T>): Promise<T | null> {
  try {
    return await step;
  } catch (error) {
    if (isBusy(error)) return null;
    throw error;
  }
}

/** Works out the partitions of jobs that have none yet. */
async function keyJobs(context: TickContext, policy: AnyPolicy): Promise<number> {
  const { name, version } = policyDefinition(policy);
  // usually there are none, and one round trip shows that
  const [any] = await context.withPgClient((client) => context.engine.keylessJobs(client, name, version, 1));
  if (!any) return 0;
  const { read, refused } = await keyBatch(context, policy, storeKeys).catch((error) => {
    if (!isOfEntries(error)) throw error;
    return keyBatch(context, policy, storeKeysInParts);
  });
  reportRefused(context, name, refused);
  return read;
}

function reportRefused({ events, logger }: TickContext, policy: string, refused: readonly KeyedJob[]): void {
  const [first] = refused;
  if (!first) return;
  emit(events, "dispatchPolicy:quarantine", { policy, count: refused.length });
  logger.warn(
    `Policy "${policy}" quarantined ${counted(refused.length, "job")}, because it cannot work out the partition. ` +
      `The first is ${first.id}: ${first.error}. They are tried again later. ` +
      "Correct or remove them: staged_jobs.error says what is wrong with each",
  );
}

/** Returns the jobs that were quarantined. */
type StoreKeys = (
  engine: Engine,
  client: Queryable,
  policy: AnyPolicy,
  jobs: readonly KeyedJob[],
) => Promise<readonly KeyedJob[]>;

function keyBatch({ withPgClient, engine }: TickContext, policy: AnyPolicy, store: StoreKeys) {
  const { name, version } = policyDefinition(policy);
  return withPgClient((client) =>
    engine.inTransaction(client, async () => {
      const jobs = await engine.keylessJobs(client, name, version, KEY_BATCH);
      const keyed = jobs.map((job) => keyedJob(policy, job));
      const refused = keyed.length > 0 ? await store(engine, client, policy, keyed) : [];
      return { read: jobs.length, refused };
    }),
  );
}

const storeKeys: StoreKeys = async (engine, client, policy, jobs) => {
  await engine.keyJobs(client, policy.identifier, policyDefinition(policy).version, jobs);
  return jobs.filter(({ error }) => error !== undefined);
};

/** For a batch that the database refused: tries halves of it, and quarantines a job that the database refuses alone. */
const storeKeysInParts: StoreKeys = async (engine, client, policy, jobs) => {
  const refused: KeyedJob[] = [];
  await inHalves(
    jobs,
    async (part) =>
      refused.push(...(await engine.inSavepoint(client, () => storeKeys(engine, client, policy, part)))),
    async ({ id }, error) => {
      // the error may have letters that the database's encoding lacks
      const message = storableError(error).replace(/[^\x20-\x7e]/g, "?");
      refused.push(...(await storeKeys(engine, client, policy, [{ id, error: message }])));
    },
  );
  return refused;
};

interface KeyedJob {
  readonly id: string;
  readonly cost?: number;
  readonly deadline?: Date | null | undefined;
  readonly partition?: object;
  /** Why its partition cannot be worked out. */
  readonly error?: string;
}

function keyedJob(policy: AnyPolicy, job: KeylessJob): KeyedJob {
  try {
    const resolved = resolveJob(policy, job.payload, {
      task: job.task_identifier,
      queueName: job.queue_name ?? undefined,
      priority: job.priority,
      runAt: job.run_at,
      flags: job.flags ?? undefined,
      jobKey: job.job_key ?? undefined,
    });
    const { partition, lane, shard, context, weight, limits, cost, deadline } = resolved;
    const key = job.partition_key ?? partition;
    return { id: job.staged_id, cost, deadline, partition: { key, lane, shard, context, weight, limits } };
  } catch (error) {
    return { id: job.staged_id, error: storableError(error) };
  }
}

/** An error may quote a part of the payload that was cut within a letter. */
function storableError(error: unknown): string {
  return storableText(errorText(error));
}

function finiteDate(value: Date | number | null): Date | null {
  return value instanceof Date ? value : null;
}
