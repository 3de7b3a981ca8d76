import type { JobHelpers, Task } from "graphile-worker";
import { UnwrappedTaskError } from "../errors.ts";
import type { Declaration } from "./declaration.ts";
import { parsePayload } from "./payload.ts";

/**
 * The end of a hold: `until`, a Date, or `forMs`, milliseconds from now by the database's clock. Exactly one of them;
 * undefined counts as not given.
 */
export type Until = { until: Date; forMs?: undefined } | { forMs: number; until?: undefined };

/** A running job's view of its policy: `helpers.dispatchPolicy`. */
export interface DispatchPolicyHelpers {
  readonly policy: string;
  /** The key of the job's partition. */
  readonly partition: string;
  /** The id that the job had in staging. It keeps this id through all its retries. */
  readonly stagedId: string;
  /** Which run this is: `job.attempts`, 1 for the first. */
  readonly attempt: number;
  /** When this run was admitted, by the database's clock. Null if the job was added past the policy and admitted at its start. */
  readonly admittedAt: Date | null;
  /** The wait in Graphile Worker, in milliseconds, from admission (or `run_at`, if later) to the start. Null as above. */
  readonly lagMs: number | null;
  /**
   * A UUID for what the job does elsewhere: the same in all of its runs, and no other job's, also after a failover. Hand it to a
   * partner that refuses the second one, or to a unique column.
   *
   * A job that is added again has another one: if producers repeat adds whose answer was lost, put a UUID of your own in the
   * payload.
   *
   * @example const headers = { "idempotency-key": helpers.dispatchPolicy.idempotencyKey() };
   */
  idempotencyKey(): string;
  /**
   * Stops the job's partition until a time, for example because a server answered 429. Jobs in flight go on. With `gate` it
   * stops all partitions with one key of that gate, for example those of an account. Default key: the job's own scope.
   *
   * @throws {ArgumentError} unless either a time or a length is given, or if the time is past
   * @example await helpers.dispatchPolicy.hold({ forMs: 30_000, reason: "429" });
   * @example await helpers.dispatchPolicy.hold({ gate: "account", forMs: 30_000, reason: "429" });
   */
  hold(
    options: Until & { reason?: string | undefined; gate?: string | undefined; key?: string | undefined },
  ): Promise<void>;
  /**
   * Takes `cost` tokens (default 1) from one of the policy's throttles, for work beside the job itself. It waits for no tokens:
   * without enough it takes none, and `retryAt` says when to ask again.
   *
   * It answers the same if another transaction has the throttle locked, after 250 ms at most. Default key: the job's own scope.
   *
   * @example const { taken, retryAt } = await helpers.dispatchPolicy.take({ gate: "all" });
   */
  take(options: {
    gate: string;
    key?: string | undefined;
    cost?: number | undefined;
  }): Promise<{ taken: boolean; retryAt: Date | null }>;
  /**
   * Says what this run cost, in tokens, if that differs from the policy's `cost`: an estimate, which the job has paid. The
   * difference is charged or returned when the job's slots come back.
   *
   * So it costs no query, and a crash keeps the estimate. Without `gate` it counts for each throttle of the policy. Of several
   * calls the last one counts. A return fills no bucket above its capacity. Nothing comes back of what was paid before the
   * throttle's `per`, or under other limits than the partition has now. A charge may leave a bucket in debt, of what it gains in
   * its `per` at most. A run that fails is settled as well. Its retry pays the estimate anew.
   *
   * @throws {ArgumentError} if the gate is no throttle, the cost is no number from 0 to 1e12, or the run has ended
   * @example helpers.dispatchPolicy.settle({ cost: 1700 });
   * @example helpers.dispatchPolicy.settle({ gate: "all", cost: 1700 });
   */
  settle(options: { gate?: string | undefined; cost: number }): void;
  /**
   * Lowers one of the policy's throttles to what the partner says is left of its limit, and never raises it. With `resetAt`, a
   * Date to come, no more than `remaining` goes until then. Default key: the job's own scope. `tokens` is what the throttle has
   * then.
   *
   * Null: another transaction has it locked, and nothing is lowered.
   *
   * @throws {ArgumentError} if the gate is no throttle, or `remaining` is no number from 0 to 1e12
   * @example
   * const { remaining, resetAt } = rateLimitFromHeaders(response.headers);
   * if (remaining !== null) await helpers.dispatchPolicy.sync({ gate: "throttle", remaining, resetAt });
   */
  sync(options: {
    gate: string;
    key?: string | undefined;
    remaining: number;
    resetAt?: Date | null | undefined;
  }): Promise<{ lowered: boolean; tokens: number | null }>;
}

/** Graphile Worker's helpers in a task made by `policy.task`. */
export interface PolicyJobHelpers extends JobHelpers {
  dispatchPolicy: DispatchPolicyHelpers;
}

declare module "graphile-worker" {
  interface JobHelpers {
    /** Present in tasks of a policy; a task made by `policy.task` has it for certain. */
    dispatchPolicy?: DispatchPolicyHelpers;
  }
}

/** The function of which `policy.task` makes a task. */
export type RunTask<P> = (payload: P, helpers: PolicyJobHelpers) => ReturnType<Task>;

/** Wraps `run` as a Graphile Worker task that parses the payload, and that refuses to run without its policy. */
export function makeTask({ name, tasks, schema }: Declaration, run: RunTask<never>): Task {
  return async (payload, helpers) => {
    if (helpers.dispatchPolicy === undefined) throw new UnwrappedTaskError(name, tasks);
    const parsed = schema === undefined ? payload : parsePayload(name, schema, payload);
    return run(parsed as never, helpers as PolicyJobHelpers);
  };
}
