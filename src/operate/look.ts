import { CAP_KINDS, type CapKind } from "../gates/index.ts";
import type { JsonObject } from "../policy/policy.ts";
import { checkPolicy, type OperateContext } from "./call.ts";
import { spelled } from "./rows.ts";
import { checkVerb, type PartitionTarget } from "./targets.ts";

const REASONS_OF_NO_KIND = [
  "throttle_empty",
  "rate_zero",
  "max_zero",
  "ahead_full",
  "tick_budget",
  "batch",
  "paused",
  "held",
  "breaker_open",
  "not_due",
  "set_aside",
  "waiting_key",
] as const;

/** Why a job or partition waits, from a closed list. docs/operating.md says what each means. */
export type Reason = `${CapKind}_full` | (typeof REASONS_OF_NO_KIND)[number];

export const REASONS: readonly Reason[] = [
  ...CAP_KINDS.map((kind): Reason => `${kind}_full`),
  ...REASONS_OF_NO_KIND,
];

/** A partition as it stands: a row of the view `partitions`. Its times are null where there is none, or none that comes. */
export interface PartitionStatus {
  policy: string;
  /** The partition's key. */
  partition: string;
  /** The id of the partition's row, a UUID. */
  id: string;
  shard: string;
  /** What the policy's `context` made of the job that was added last; gates' functions read it. */
  context: JsonObject;
  /** Its share beside the other partitions. */
  weight: number;
  /** Jobs that wait in staging, those that are not due yet among them. */
  staged: number;
  /** Jobs that were admitted and hold slots. */
  inFlight: number;
  /** Why it waits; null: nothing holds it back. */
  reason: Reason | null;
  /** From when a tick looks at it; null: not until something changes (a job comes, somebody resumes it). */
  eligibleAt: Date | null;
  /** The gate whose room it waits for, by name. */
  blockedOn: string | null;
  /** Why the last tick left it due jobs; a pause or hold, which `reason` names first, may have come since. */
  deniedReason: Reason | null;
  /** When the gate that denied it has room again; null: that depends on other jobs, or no gate denied it. */
  deniedUntil: Date | null;
  /** Whether it is paused itself; `reason` counts its policy's pause as well. */
  paused: boolean;
  /** The end of its own pause; null: it has none, or lasts until it is resumed. */
  pausedUntil: Date | null;
  /** The end of its hold, which may be over; null: it was never held. */
  heldUntil: Date | null;
  /** After a hold one job goes at a time, until one has succeeded. */
  probing: boolean;
  /** Who paused or held it last. */
  stoppedBy: string | null;
  /** Why they did. */
  stopReason: string | null;
  /** What counts against its share, as of `decayedAt`: jobs, or with `fairness: { by: "work" }` seconds that jobs ran. */
  decayedAdmits: number;
  decayedAt: Date;
  /** How many seconds its jobs ran lately, on average; null unless fairness is by work. */
  meanWork: number | null;
  /** Jobs that were admitted since it was made. */
  admittedTotal: number;
  /** Jobs that were dropped since it was made, by `maxPending` or `whenBusy`. */
  droppedTotal: number;
  createdAt: Date;
}

/**
 * Why a job or a partition waits. Of a partition: its {@link PartitionStatus}. Of a staged job: its row of the view
 * `staged_jobs`, with what is known of its partition. Of a job in flight: its row of the view `in_flight_jobs`. What is
 * not known is missing: of a job that is neither staged nor in flight there is only the reason, null.
 */
export interface Explanation extends Partial<Omit<PartitionStatus, "id" | "partition" | "reason">> {
  /** Null: nothing holds it back. */
  reason: Reason | null;
  /** Of a staged job, its id; of a partition, the id of its row. */
  id?: string;
  /** The partition's key; null for a job whose key is still to be worked out. */
  partition?: string | null;
  taskIdentifier?: string;
  /** Tokens the job takes from each throttle. */
  cost?: number;
  /** Graphile Worker's id: of a job in flight, or of a failed one that waits for its retry. */
  jobId?: string | null;

  // of a staged job
  queueName?: string | null;
  /** When it is due; null: at no time that comes. */
  runAt?: Date | null;
  priority?: number;
  maxAttempts?: number | null;
  jobKey?: string | null;
  flags?: readonly string[] | null;
  payload?: unknown;
  /** What Graphile Worker, or a function of the policy, said when the job was set aside. */
  error?: string | null;
  /** How many times it was set aside. */
  failures?: number;
  /** When a job that was set aside is tried again. */
  retryAt?: Date | null;

  // of a job in flight
  /** The id it had in staging. */
  stagedId?: string;
  admittedAt?: Date;
  /** When a worker fetched it; null: not yet. */
  startedAt?: Date | null;
  /** The worker that runs it. */
  workerId?: string | null;
  /** How many times it was started; null: Graphile Worker has it no more, and a sweep gives its slot back. */
  attempts?: number | null;
}

/** Which partitions, and how many of them. */
export interface PartitionsQuery {
  policy?: string | undefined;
  /** Only keys that contain this text. */
  search?: string | undefined;
  /** Only keys after this one: the last key of the page before. */
  after?: string | undefined;
  /** A whole number from 1. Default 100. */
  limit?: number | undefined;
}

/** A view's row, as PostgreSQL spells it. */
type Row = Record<string, unknown>;

/** Documented at {@link Operate.explain}. */
export async function explain(
  { withPgClient, engine }: OperateContext,
  options: { id: string } | PartitionTarget,
): Promise<Explanation> {
  const byId = typeof options === "object" && options !== null && "id" in options;
  checkVerb("explain", options, byId ? { needs: ["id"] } : { needs: ["policy", "partition"] });
  return withPgClient(async (client) => {
    const state = (policy: unknown, partition: unknown) =>
      engine.view<Row>(client, "partitions", "where policy = $1 and partition = $2", [policy, partition]);
    if (!byId) {
      await checkPolicy(client, engine, options.policy);
      const [row = {}] = await state(options.policy, options.partition);
      return spelled<Explanation>({ ...row, reason: row.reason ?? null });
    }
    const [job] = await engine.view<Row>(client, "staged_jobs", "where id = $1 or job_id = $1", [options.id]);
    if (job) {
      const [row = {}] = await state(job.policy, job.partition);
      return spelled<Explanation>({ ...row, ...job, reason: job.reason ?? row.reason ?? null });
    }
    const admitted = "where staged_id = $1 or job_id = $1";
    const [running = {}] = await engine.view<Row>(client, "in_flight_jobs", admitted, [options.id]);
    return spelled<Explanation>({ ...running, reason: null });
  });
}

/** Documented at {@link Operate.partitions}. */
export async function partitions(
  { withPgClient, engine }: OperateContext,
  query: PartitionsQuery = {},
): Promise<readonly PartitionStatus[]> {
  checkVerb("partitions", query, { takes: ["policy", "search", "after", "limit"] });
  const { policy, search = null, after = null, limit = 100 } = query;
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<Row>(
      client,
      "partitions",
      `where ($1::text is null or policy = $1) and ($2::text is null or strpos(partition, $2) > 0)
         and ($3::text is null or partition > $3) order by partition fetch first $4 rows with ties`,
      [policy ?? null, search, after, limit],
    );
  });
  return rows.map((row) => spelled<PartitionStatus>(row));
}
