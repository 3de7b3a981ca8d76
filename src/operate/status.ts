import { checkPolicy, type OperateContext } from "./call.ts";
import { checkVerb } from "./targets.ts";

export interface PolicyStatus {
  policy: string;
  version: number;
  staged: number;
  inFlight: number;
  partitions: number;
  paused: boolean;
  enabled: boolean;
  /** No live worker has its tasks; its jobs keep being admitted under their stored limits. */
  orphaned: boolean;
}

export interface WorkerStatus {
  poolId: string;
  slots: number;
  tasks: readonly string[];
  alive: boolean;
  heartbeatAt: Date;
}

/**
 * Policies and worker pools as they stand.
 *
 * @throws {UnknownPolicyError} for a policy nobody declared, listing the known ones
 */
export async function status(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string } = {},
): Promise<{ policies: readonly PolicyStatus[]; workers: readonly WorkerStatus[] }> {
  checkVerb("status", options, { takes: ["policy"] });
  return withPgClient(async (client) => {
    await checkPolicy(client, engine, options.policy);
    const policies = await engine.view<PolicyStatus & { in_flight: number }>(
      client,
      "policies",
      "where $1::text is null or policy = $1 order by policy",
      [options.policy ?? null],
    );
    const workers = await engine.view<Record<string, unknown>>(client, "workers", "order by pool_id");
    return {
      policies: policies.map(
        ({ policy, version, staged, in_flight, partitions, paused, enabled, orphaned }) => {
          return { policy, version, staged, inFlight: in_flight, partitions, paused, enabled, orphaned };
        },
      ),
      workers: workers.map(({ pool_id, slots, tasks, alive, heartbeat_at }) => {
        return { poolId: pool_id, slots, tasks, alive, heartbeatAt: heartbeat_at } as WorkerStatus;
      }),
    };
  });
}
