import { checkPolicy, type OperateContext } from "./call.ts";
import { checkVerb, type PartitionTarget } from "./targets.ts";

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
 * Why a job or a partition waits: its row of the public views, with the reason; null when nothing holds it back. A job that
 * was admitted shows when (`admitted_at`, `started_at`); one that is neither staged nor in flight shows no more than that.
 *
 * @throws {ArgumentError} unless the options are an id (Graphile Worker's or the staged one), or policy and partition
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 * @example const { reason } = await utils.explain({ policy: "fetch_endpoint", partition: "ep1" });
 */
export async function explain(
  { withPgClient, engine }: OperateContext,
  options: { id: string } | PartitionTarget,
): Promise<{ reason: Reason | null; [more: string]: unknown }> {
  const byId = typeof options === "object" && options !== null && "id" in options;
  checkVerb("explain", options, byId ? { needs: ["id"] } : { needs: ["policy", "partition"] });
  return withPgClient(async (client) => {
    const state = (policy: unknown, partition: unknown) =>
      engine.view<Row>(client, "partitions", "where policy = $1 and partition = $2", [policy, partition]);
    if (!byId) {
      await checkPolicy(client, engine, options.policy);
      const [row = {}] = await state(options.policy, options.partition);
      return { ...row, reason: reasonOf(row) };
    }
    const [job] = await engine.view<Row>(client, "staged_jobs", "where id = $1 or job_id = $1", [options.id]);
    if (job) {
      const [row = {}] = await state(job.policy, job.partition);
      return { ...row, ...job, reason: reasonOf(job) ?? reasonOf(row) };
    }
    const admitted = "where staged_id = $1 or job_id = $1";
    const [running = {}] = await engine.view<Row>(client, "in_flight_jobs", admitted, [options.id]);
    return { ...running, reason: null };
  });
}

function reasonOf({ reason = null }: Row): Reason | null {
  return reason as Reason | null;
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
  checkVerb("partitions", query, { takes: ["policy", "search", "after", "limit"] });
  const { policy, search = null, after = null, limit = 100 } = query;
  return withPgClient(async (client) => {
    await checkPolicy(client, engine, policy);
    return engine.view<Row>(
      client,
      "partitions",
      `where ($1::text is null or policy = $1) and ($2::text is null or strpos(partition, $2) > 0)
         and ($3::text is null or partition > $3) order by partition fetch first $4 rows with ties`,
      [policy ?? null, search, after, limit],
    );
  });
}
