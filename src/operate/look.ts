import { parameter } from "../db/engine.ts";
import type { JsonObject } from "../policy/policy.ts";
import type { Reason } from "../policy/reasons.ts";
import { checkPolicy, type OperateContext } from "./call.ts";
import { spelled } from "./rows.ts";
import { checkVerb } from "./verb.ts";

/** The state of a partition: a row of the view `partitions`. A time is null if there is none, or if it never comes. */
export interface PartitionStatus {
  /** The policy's name. */
  policy: string;
  /** The partition's key. */
  partition: string;
  /** The id of the partition's row, a UUID. */
  id: string;
  /** The part of the policy's partitions to which it belongs, by `shardBy`. */
  shard: string;
  /** The result of the policy's `context` for the job that was added last. Gates' functions read it. */
  context: JsonObject;
  /** Its share in relation to the other partitions. */
  weight: number;
  /** The class of its next job; lower ones go first. */
  class: number;
  /** Jobs that wait in staging, including those that are not due yet. */
  staged: number;
  /** Jobs that were admitted and occupy slots. */
  inFlight: number;
  /** Why it waits; null: it does not wait. */
  reason: Reason | null;
  /** When a tick may claim it; null: not until something changes (a job is added, somebody resumes it). */
  eligibleAt: Date | null;
  /** The gate that `reason` is about, by name: of several without room the first, from narrow to broad. Null: it is about none. */
  blockedOn: string | null;
  /** Why the last tick did not admit all its due jobs. If it was paused or held since, `reason` names that instead. */
  deniedReason: Reason | null;
  /** When the gate that denied it will have room; null: that depends on other jobs, or no gate denied it. */
  deniedUntil: Date | null;
  /** Whether the partition itself is paused. `reason` also shows the pause of its policy. */
  paused: boolean;
  /** The end of its own pause; null: it has none, or it lasts until `resume`. */
  pausedUntil: Date | null;
  /** The end of its hold, which may be over; null: it was never held. */
  heldUntil: Date | null;
  /** The end of its breaker's cooldown, which may be over; null: it never opened. */
  breakerUntil: Date | null;
  /** What opened its breaker last. */
  breakerReason: string | null;
  /** After a hold one job goes at a time, until one has succeeded. */
  probing: boolean;
  /** Who paused or held it. Of two holds it is who set the one that ends later. */
  stoppedBy: string | null;
  /** The reason that they gave. */
  stopReason: string | null;
  /** What counts against its share at `decayedAt`: jobs, or with `fairness: { by: "work" }` seconds that jobs ran. */
  decayedAdmits: number;
  /** The time for which `decayedAdmits` is worked out. */
  decayedAt: Date;
  /** The moving average of its jobs' durations, in seconds; null unless fairness is by work. */
  meanWork: number | null;
  /** Jobs that were admitted since it was made. */
  admittedTotal: number;
  /** Jobs that were dropped since it was made, by `maxPending`, `whenBusy` or `uniqueFor`, or because they expired. */
  droppedTotal: number;
  /** When a job of it was admitted last; null: none was. */
  lastAdmittedAt: Date | null;
  /** Jobs admitted a minute lately: older ones count less, by the half-life of fairness. Null if fairness is by work. */
  admitsAMinute: number | null;
  /** When its next job is due, or since when it is; null: no job waits. */
  nextDueAt: Date | null;
  /** When it was made. In the explanation of a staged job: when that job was added. */
  createdAt: Date;
}

/** Selects partitions. */
export interface PartitionsQuery {
  /** Only partitions of this policy. An unknown one is an {@link UnknownPolicyError}. */
  policy?: string | undefined;
  /** Only keys that contain this text. */
  search?: string | undefined;
  /** Only keys after this one: the last key of the page before. */
  after?: string | undefined;
  /** A whole number from 1. Default 100. */
  limit?: number | undefined;
}

const [POLICY, SEARCH, AFTER] = [parameter(1, "text"), parameter(2, "text"), parameter(3, "text")];
const WHERE_ASKED = `where (${POLICY} is null or policy = ${POLICY})
  and (${SEARCH} is null or strpos(partition, ${SEARCH}) > 0) and (${AFTER} is null or partition > ${AFTER})
  order by partition fetch first (${parameter(4, "int")}) rows with ties`;

/** A view's row, as PostgreSQL spells it. */
type Row = Record<string, unknown>;

/** Documented at {@link Operate.partitions}. */
export async function partitions(
  { withPgClient, engine }: OperateContext,
  query: PartitionsQuery = {},
): Promise<readonly PartitionStatus[]> {
  checkVerb("partitions", query, { takes: ["policy", "search", "after", "limit"] });
  const { policy, search = null, after = null, limit = 100 } = query;
  const rows = await withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<Row>(client, "partitions", WHERE_ASKED, [policy ?? null, search, after, limit]);
  });
  return rows.map((row) => spelled<PartitionStatus>(row));
}
