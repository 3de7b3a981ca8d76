import type { WithPgClient } from "graphile-worker";
import { storableText } from "../checks/options.ts";
import type { Admission, Drop, Engine, KeylessJob, Queryable } from "../db/engine.ts";
import { inHalves, isOfEntries } from "../db/halves.ts";
import { isBusy } from "../db/outage.ts";
import { type EventSink, emit } from "../events.ts";
import { type AnyPolicy, policyDefinition, resolveJob } from "../policy/policy.ts";
import type { Registry } from "../policy/registry.ts";

/** Arrivals and notes one routing step takes at most. */
const ROUTE_BATCH = 10_000;
/** Such steps before it admits: however many arrive, those that are routed go. */
const ROUTE_STEPS = 10;
const KEY_BATCH = 1000;

export interface TickContext {
  readonly withPgClient: WithPgClient;
  readonly engine: Engine;
  readonly registry: Registry;
  readonly events: EventSink;
  readonly partitionBatchSize: number;
}

export interface TickRequest {
  readonly policy: string;
  /** Null: every shard. */
  readonly shard: string | null;
  /** Null: the database clock. */
  readonly now: Date | null;
  /** Whether the policy's jobs are kept just ahead of its workers. */
  readonly bounded: boolean;
}

/** What one admission pass did. */
export interface TickResult {
  /** Partitions looked at. */
  claimed: number;
  admitted: number;
  /** Partitions that kept due jobs, each once, under the gate that frees last. */
  denied: Record<string, number>;
  /** Jobs that were dropped since the pass before, by `maxPending` or `whenBusy`. */
  dropped: number;
  durationMs: number;
  /** When something may be admitted next; null: nothing until something happens. */
  nextEligibleAt: Date | null;
}

/** A pass, and whether there was more to do than it did: then the caller comes back at once. */
export interface Pass extends TickResult {
  readonly more: boolean;
  /** Another pass was at it, and may have seen less than this one would have. */
  readonly busy: boolean;
  /** Whether anything was routed: a partition may be of a shard that is new. */
  readonly routed: boolean;
  /** Whether anything moved on: a caller that comes back without it slows down. */
  readonly progress: boolean;
  /** Milliseconds by the database's clock until something may be admitted; null: nothing until something happens. */
  readonly nextInMs: number | null;
  /** Nothing goes until a job ends; "workers": since they have enough to do for a while. */
  readonly saturated: "gate" | "workers" | null;
}

/** One admission pass: completes keys, routes what arrived, admits. Each step is a transaction of its own. */
export async function tickOnce(context: TickContext, request: TickRequest): Promise<Pass> {
  const started = performance.now();
  const keyed = await keyJobs(context, request.policy);
  const routed = await route(context, request);
  const admission = await admit(context, request);
  const drops = await takeDrops(context, request.policy);
  const saturated = admission?.saturated ?? null;
  const busy = admission === null || routed < 0;
  const isDue = admission?.to_route || (admission?.next_in_ms ?? Number.POSITIVE_INFINITY) <= 0;
  const pass: Pass = {
    claimed: admission?.claimed ?? 0,
    admitted: admission?.admitted ?? 0,
    denied: admission?.denied ?? {},
    dropped: drops.reduce((sum, { jobs }) => sum + jobs, 0),
    durationMs: performance.now() - started,
    nextEligibleAt: finiteDate(admission?.next_eligible_at ?? null),
    nextInMs: admission?.next_in_ms ?? null,
    saturated,
    busy,
    more: busy || keyed > 0 || (saturated === null && isDue),
    routed: routed !== 0,
    progress:
      keyed > 0 || routed > 0 || (admission !== null && hasMoved(admission, context.partitionBatchSize)),
  };
  tell(context.events, request, pass, admission?.set_aside ?? 0);
  for (const { partition, reason, jobs } of drops)
    emit(context.events, "dispatchPolicy:drop", { policy: request.policy, partition, reason, count: jobs });
  return pass;
}

/**
 * Whether a pass left anything other than it was. If it looked at all that could go and neither admitted nor denied
 * anything, other sessions hold what is due: a pass that follows at once would find the same.
 */
function hasMoved({ claimed, admitted, set_aside, denied }: Admission, most: number): boolean {
  return claimed >= most || admitted + set_aside > 0 || Object.keys(denied).length > 0;
}

/** Only policies that may drop jobs are asked. */
async function takeDrops({ registry, withPgClient, engine }: TickContext, name: string): Promise<Drop[]> {
  const policy = registry.policies.find((one) => one.identifier === name);
  if (!policy) return [];
  const { maxPending, whenBusy } = policyDefinition(policy);
  const drops = (maxPending !== null && maxPending.whenFull !== "reject") || whenBusy === "skip";
  if (!drops) return [];
  return withPgClient((client) => engine.takeDrops(client, name));
}

/** One event per transition, with its numbers. */
function tell(events: EventSink, { policy, shard }: TickRequest, pass: Pass, setAside: number): void {
  if (pass.claimed === 0) return;
  const { claimed, admitted, denied, durationMs } = pass;
  emit(events, "dispatchPolicy:tick", { policy, shard, claimed, admitted, denied, durationMs });
  if (admitted > 0) emit(events, "dispatchPolicy:admit", { policy, shard, count: admitted });
  for (const [reason, partitions] of Object.entries(denied)) {
    emit(events, "dispatchPolicy:deny", { policy, shard, reason, partitions });
  }
  if (setAside > 0) emit(events, "dispatchPolicy:setAside", { policy, count: setAside });
}

/** Routes while there is a batch to consume. Returns how much it did; -1: another router is at work. */
async function route(context: TickContext, request: TickRequest): Promise<number> {
  let total = 0;
  for (let steps = 0; steps < ROUTE_STEPS; steps++) {
    const step = context.withPgClient((client) =>
      context.engine.route(client, { ...request, max: ROUTE_BATCH }),
    );
    const routed = (await orBusy(step)) ?? -1;
    if (routed < 0) return routed;
    total += routed;
    if (routed < ROUTE_BATCH) break;
  }
  return total;
}

function admit(context: TickContext, request: TickRequest) {
  const step = context.withPgClient((client) =>
    context.engine.admit(client, { ...request, claim: context.partitionBatchSize }),
  );
  return orBusy(step);
}

/** Null when locks were not to be had in time: busy, and to be tried again. */
async function orBusy<T>(step: Promise<T>): Promise<T | null> {
  try {
    return await step;
  } catch (error) {
    if (isBusy(error)) return null;
    throw error;
  }
}

/** Works out the partitions of jobs staged from SQL that only this process's functions can tell. */
async function keyJobs(context: TickContext, name: string): Promise<number> {
  const policy = context.registry.policies.find((one) => one.identifier === name);
  if (!policy || policyDefinition(policy).resolvesInSql) return 0;
  // mostly there are none, which one round trip tells
  const [any] = await context.withPgClient((client) => context.engine.keylessJobs(client, name, 1));
  if (!any) return 0;
  try {
    return await keyBatch(context, policy, storeKeys);
  } catch (error) {
    if (!isOfEntries(error)) throw error;
    return keyBatch(context, policy, storeKeysInParts);
  }
}

type StoreKeys = (
  engine: Engine,
  client: Queryable,
  policy: AnyPolicy,
  jobs: readonly KeyedJob[],
) => Promise<unknown>;

function keyBatch(
  { withPgClient, engine }: TickContext,
  policy: AnyPolicy,
  store: StoreKeys,
): Promise<number> {
  return withPgClient((client) =>
    engine.inTransaction(client, async () => {
      const jobs = await engine.keylessJobs(client, policy.identifier, KEY_BATCH);
      if (jobs.length > 0) {
        const keyed = jobs.map((job) => keyedJob(policy, job));
        await store(engine, client, policy, keyed);
      }
      return jobs.length;
    }),
  );
}

const storeKeys: StoreKeys = (engine, client, policy, jobs) =>
  engine.keyJobs(client, policy.identifier, policyDefinition(policy).version, jobs);

/** The database refused a batch: halves of it are tried, and a job that it refuses alone is set aside with its error. */
const storeKeysInParts: StoreKeys = (engine, client, policy, jobs) =>
  inHalves(
    jobs,
    (part) => engine.inSavepoint(client, () => storeKeys(engine, client, policy, part)),
    ({ id }, error) => {
      // its own error may be what this database's encoding has no letters for
      const message = errorText(error).replace(/[^\x20-\x7e]/g, "?");
      return storeKeys(engine, client, policy, [{ id, error: message }]);
    },
  );

interface KeyedJob {
  readonly id: string;
  readonly cost?: number;
  readonly partition?: object;
  /** Why it cannot be worked out. */
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
    const { partition, shard, context, weight, limits, cost } = resolved;
    const key = job.partition_key ?? partition;
    return { id: job.staged_id, cost, partition: { key, shard, context, weight, limits } };
  } catch (error) {
    return { id: job.staged_id, error: errorText(error) };
  }
}

/** It may quote a part of the payload that was cut within a letter. */
function errorText(error: unknown): string {
  return storableText(error instanceof Error ? error.message : String(error));
}

function finiteDate(value: Date | number | null): Date | null {
  return value instanceof Date ? value : null;
}
