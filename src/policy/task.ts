import type { JobHelpers, Task } from "graphile-worker";
import { UnwrappedTaskError } from "../errors.ts";
import type { Declaration } from "./declaration.ts";
import { parsePayload } from "./payload.ts";

/**
 * When a hold ends: `until`, a Date, or `forMs`, a number of milliseconds from now by the database's clock. Exactly one of
 * them; undefined counts as not given.
 */
export type Until = { until: Date; forMs?: undefined } | { forMs: number; until?: undefined };

/** What a running job of a policy can ask and do about its policy. */
export interface DispatchPolicyHelpers {
  readonly policy: string;
  /** The key of the job's partition. */
  readonly partition: string;
  /** The id that the job had in staging. It keeps this id through all its retries. */
  readonly stagedId: string;
  /** Which run this is: `job.attempts`, 1 for the first. */
  readonly attempt: number;
  /** When this run was admitted, by the database's clock; null where a job was let in at its start. */
  readonly admittedAt: Date | null;
  /** The wait in Graphile Worker, in milliseconds, from admission (or `run_at`, if later) to the start; null as above. */
  readonly lagMs: number | null;
  /**
   * Stops the job's partition until a time, as when a server answered 429. Jobs in flight are left alone.
   *
   * @throws {ArgumentError} unless either a time or a length is given
   * @example await helpers.dispatchPolicy.hold({ forMs: 30_000, reason: "429" });
   */
  hold(options: Until & { reason?: string | undefined }): Promise<void>;
  /**
   * Takes `cost` tokens (default 1) from one of the policy's throttles, for work beside the job itself. Never waits:
   * without enough tokens it takes none and says when there will be. The key is the job's own scope unless given.
   *
   * @example const { taken, retryAt } = await helpers.dispatchPolicy.take({ gate: "all" });
   */
  take(options: {
    gate: string;
    key?: string | undefined;
    cost?: number | undefined;
  }): Promise<{ taken: boolean; retryAt: Date | null }>;
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

export type RunTask<P> = (payload: P, helpers: PolicyJobHelpers) => ReturnType<Task>;

/** Wraps `run` as a Graphile Worker task that parses the payload, and that refuses to run where no gate would hold. */
export function makeTask({ name, tasks, schema }: Declaration, run: RunTask<never>): Task {
  return async (payload, helpers) => {
    if (helpers.dispatchPolicy === undefined) throw new UnwrappedTaskError(name, tasks);
    const parsed = schema === undefined ? payload : parsePayload(name, schema, payload);
    return run(parsed as never, helpers as PolicyJobHelpers);
  };
}
