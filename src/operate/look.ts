import type { Engine, Queryable } from "../db/engine.ts";
import { ArgumentError, UnknownPolicyError } from "../errors.ts";
import type { OperateContext } from "./call.ts";
import type { PartitionTarget } from "./targets.ts";

/** Why a job or partition waits, from a closed list. */
export type Reason =
  | "throttle_empty"
  | "rate_zero"
  | "concurrency_full"
  | "max_zero"
  | "adaptive_concurrency_full"
  | "tick_budget"
  | "batch"
  | "ahead_full"
  | "paused"
  | "held"
  | "not_due"
  | "set_aside"
  | "waiting_key"
  | "breaker_open";

type Row = Record<string, unknown>;

/**
 * Why a job or a partition waits: its row of the public views, with the reason. Null when nothing holds it back, or when
 * it is not staged.
 *
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 * @example const { reason } = await utils.explain({ policy: "fetch_endpoint", partition: "ep1" });
 */
export async function explain(
  { withPgClient, engine }: OperateContext,
  options: { id: string } | PartitionTarget,
): Promise<{ reason: Reason | null; [more: string]: unknown }> {
  return withPgClient(async (client) => {
    let { policy, partition } = options as Partial<PartitionTarget>;
    let job: Row = {};
    if ("id" in options) {
      [job = {}] = await engine.view<Row>(client, "staged_jobs", "where id = $1", [options.id]);
      policy = job.policy as string | undefined;
      partition = job.partition as string | undefined;
    }
    const where = "where policy = $1 and partition = $2";
    const [state = {}] = await engine.view<Row>(client, "partitions", where, [
      policy ?? null,
      partition ?? null,
    ]);
    if (policy !== undefined && Object.keys(state).length === 0) await checkPolicy(client, engine, policy);
    return { ...state, ...job, reason: (job.reason ?? state.reason ?? null) as Reason | null };
  });
}

async function checkPolicy(client: Queryable, engine: Engine, policy: string): Promise<void> {
  const known = await engine.policyNames(client);
  if (!known.includes(policy)) throw new UnknownPolicyError(policy, known);
}

/**
 * Partitions by policy and key, in the order of their keys; `after` is the last key of the page before. Partitions of one
 * key, of several policies, come together: a page may have some more than `limit` (100).
 *
 * @throws {ArgumentError} when `limit` is not 1 or more
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 * @example const [first] = await utils.partitions({ policy: "fetch_endpoint", search: "acct:", limit: 1 });
 */
export async function partitions(
  { withPgClient, engine }: OperateContext,
  query: { policy?: string; search?: string; after?: string; limit?: number } = {},
): Promise<readonly Row[]> {
  const { policy = null, search = null, after = null, limit = 100 } = query;
  if (!Number.isSafeInteger(limit) || limit < 1) {
    throw new ArgumentError(`partitions: limit must be a whole number, 1 or more, got ${limit}`);
  }
  return withPgClient(async (client) => {
    const rows = await engine.view<Row>(
      client,
      "partitions",
      `where ($1::text is null or policy = $1) and ($2::text is null or strpos(partition, $2) > 0)
         and ($3::text is null or partition > $3) order by partition fetch first $4 rows with ties`,
      [policy, search, after, limit],
    );
    if (policy !== null && rows.length === 0) await checkPolicy(client, engine, policy);
    return rows;
  });
}
