import { parameter } from "../db/engine.ts";
import { checkPolicy, type OperateContext } from "./call.ts";
import { type StopInForce, stopsOf } from "./stops.ts";
import { checkVerb } from "./verb.ts";

/** The staged job that has been due for longest, whatever it waits for. */
export interface OldestDue {
  /** Its id in staging, as `explain` takes it. */
  id: string;
  policy: string;
  /** Key of its partition; null: not worked out yet. */
  partition: string | null;
  /** Seconds since it was due, or since it was added if that was later. */
  ageSeconds: number;
}

/** What partitions of a policy wait for. */
export interface WaitingFor {
  /** One of those that docs/operating.md explains, or `none`: they are in line. */
  reason: string;
  /** How many partitions wait for it. */
  partitions: number;
  /** How many staged jobs these have. */
  jobs: number;
}

/** The state of a policy. */
export interface PolicyStatus {
  policy: string;
  /** The `version` of its declaration. */
  version: number;
  /** Jobs that wait in staging. */
  staged: number;
  /** What partitions with staged jobs wait for, that of the most partitions first. Jobs that no tick has looked at are in `staged` alone. */
  waiting: readonly WaitingFor[];
  /** Of the staged jobs the one that has been due for longest; null: none is due. */
  oldestDue: OldestDue | null;
  /** Jobs that were admitted and not released yet. */
  inFlight: number;
  /** How many partitions it has. */
  partitions: number;
  /** Whether the policy itself is paused. Its partitions may have pauses of their own. */
  paused: boolean;
  /** Whether it is paused because all policies are. */
  pausedWithAll: boolean;
  /** False: it is switched off, and no gate applies. */
  enabled: boolean;
  /**
   * No live worker has its tasks, or none has the policy. Its jobs are still admitted, under their stored limits: by ticks
   * of others, as from the crontab.
   */
  orphaned: boolean;
  /** Jobs that ended in workers without this package, since the first declaration. Their slots were freed late. */
  endedElsewhere: number;
  /**
   * How many different definitions of this version live workers have. More than one: of the workers that have them, the
   * one that started last decides. Give the newer definition a higher `version`.
   */
  liveDefinitions: number;
  /** Limits are being worked out again for the partitions, because the definition has changed. */
  resolving: boolean;
  /** The highest version that a process has declared. A definition is forgotten a day later, if no worker has it. */
  newestVersion: number;
  /**
   * Why its definition is in force. `newest`: no process has declared a higher version. `workers`: it is the newest that a
   * live worker has. `no_worker`: no live worker has the policy, so it stays. `no_sweep`: live workers have another one,
   * which the next sweep puts in force.
   */
  inForceBecause: "newest" | "workers" | "no_worker" | "no_sweep";
  /**
   * Policies that govern tasks of its definition now, because they were declared later. So it is while a policy is renamed.
   * `policies` of {@link WorkerStatus} says which live workers have the one and which the other.
   */
  tasksTakenBy: readonly string[];
  /** Of a shared limit, which has no jobs: the policies whose gates name it. Null: it is a policy. */
  sharedBy: readonly string[] | null;
}

/** Jobs that wait for a policy that nobody declared. */
export interface UndeclaredPolicy {
  policy: string;
  /** Jobs that wait in staging. */
  staged: number;
}

/** The state of a worker pool. */
export interface WorkerStatus {
  poolId: string;
  /** The most jobs that it runs at once. */
  slots: number;
  tasks: readonly string[];
  /** The names of the policies that it has. */
  policies: readonly string[];
  /** Whether its last heartbeat is recent. */
  alive: boolean;
  heartbeatAt: Date;
  /** When it counts as dead, unless a heartbeat comes before. */
  staleAt: Date;
}

/** The state of policies and worker pools. */
export interface Status {
  policies: readonly PolicyStatus[];
  /** Of the jobs of these policies the one that has been due for longest; null: none is due. */
  oldestDue: OldestDue | null;
  /** What no policy counts: a process added these jobs before any declared the policy, or after it was removed. */
  undeclared: readonly UndeclaredPolicy[];
  workers: readonly WorkerStatus[];
  /** The pause of all policies, which also stops those that are declared later; null: there is none. */
  pauseOfAll: StopInForce | null;
}

/** Not those that count jobs. */
const WORKER = "pool_id, slots, tasks, policies, alive, heartbeat_at, stale_at";

/** Documented at {@link Operate.status}. */
export async function status(
  { withPgClient, engine }: OperateContext,
  options: { policy?: string | undefined } = {},
): Promise<Status> {
  checkVerb("status", options, { takes: ["policy"] });
  const asked = parameter(1, "text");
  return withPgClient(async (client) => {
    const undeclared = await engine.view<UndeclaredPolicy>(
      client,
      "undeclared_policies",
      `where ${asked} is null or policy = ${asked} order by policy`,
      [options.policy ?? null],
    );
    if (undeclared.length === 0) await checkPolicy(client, engine, options.policy);
    const rows = await engine.view<
      PolicyStatus & {
        in_flight: number;
        ended_elsewhere: number;
        live_definitions: number;
        paused_with_all: boolean;
        tasks_taken_by: string[];
        shared_by: string[] | null;
        newest_version: number;
        in_force_because: PolicyStatus["inForceBecause"];
        oldest_due_age_seconds: number | null;
        oldest_due_id: string | null;
        oldest_due_partition: string | null;
      }
    >(client, "policies", `where ${asked} is null or policy = ${asked} order by policy`, [
      options.policy ?? null,
    ]);
    const workers = await engine.view<Record<string, unknown>>(
      client,
      "workers",
      "order by pool_id",
      [],
      WORKER,
    );
    const [pauseOfAll = null] = await stopsOf(client, engine, "where policy is null", []);
    const policies = rows.map(
      ({ policy, version, staged, waiting, partitions, paused, enabled, orphaned, resolving, ...counts }) => {
        const { in_flight: inFlight, ended_elsewhere: endedElsewhere } = counts;
        const pausedWithAll = counts.paused_with_all;
        const live = { orphaned, endedElsewhere, liveDefinitions: counts.live_definitions, resolving };
        const why = { newestVersion: counts.newest_version, inForceBecause: counts.in_force_because };
        const all = {
          paused,
          pausedWithAll,
          enabled,
          ...live,
          ...why,
          tasksTakenBy: counts.tasks_taken_by,
          sharedBy: counts.shared_by,
        };
        return {
          policy,
          version,
          staged,
          waiting,
          oldestDue: oldestDueOf(policy, counts),
          inFlight,
          partitions,
          ...all,
        };
      },
    );
    return {
      pauseOfAll,
      policies,
      oldestDue: oldestOf(policies),
      undeclared,
      workers: workers.map(({ pool_id, slots, tasks, policies: has, alive, heartbeat_at, stale_at }) => {
        const seen = { alive, heartbeatAt: heartbeat_at, staleAt: stale_at };
        return { poolId: pool_id, slots, tasks, policies: has, ...seen } as WorkerStatus;
      }),
    };
  });
}

function oldestDueOf(
  policy: string,
  row: {
    oldest_due_age_seconds: number | null;
    oldest_due_id: string | null;
    oldest_due_partition: string | null;
  },
): OldestDue | null {
  const { oldest_due_age_seconds: ageSeconds, oldest_due_id: id, oldest_due_partition: partition } = row;
  return ageSeconds === null || id === null ? null : { id, policy, partition, ageSeconds };
}

function oldestOf(policies: readonly PolicyStatus[]): OldestDue | null {
  const all = policies.flatMap(({ oldestDue }) => oldestDue ?? []);
  return all.toSorted((one, other) => other.ageSeconds - one.ageSeconds)[0] ?? null;
}
