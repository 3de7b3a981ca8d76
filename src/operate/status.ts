import { checkPolicy, type OperateContext } from "./call.ts";
import { checkVerb } from "./targets.ts";

/** A policy as it stands. */
export interface PolicyStatus {
  policy: string;
  /** The `version` of its declaration. */
  version: number;
  /** Jobs that wait in staging. */
  staged: number;
  /** Jobs that were admitted and not released yet. */
  inFlight: number;
  /** Partitions that are known. */
  partitions: number;
  /** Whether the policy is paused; its partitions may be paused beside. */
  paused: boolean;
  /** False: no gate holds. */
  enabled: boolean;
  /** No live worker has its tasks; its jobs keep being admitted under their stored limits. */
  orphaned: boolean;
}

/** A worker pool as it stands. */
export interface WorkerStatus {
  poolId: string;
  /** Jobs it runs at once, at most. */
  slots: number;
  tasks: readonly string[];
  /** Whether its heartbeats come. */
  alive: boolean;
  heartbeatAt: Date;
}

/** Documented at {@link Operate.status}. */
export async function status(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string | undefined } = {},
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
