import { show } from "../checks/options.ts";
import type { GroupCallback, StageJob } from "../db/engine.ts";
import { ArgumentError, PayloadError } from "../errors.ts";
import type { JobSpec } from "../policy/job.ts";
import type { AnyPolicy, PolicyPayload } from "../policy/policy.ts";
import type { JobToAdd } from "./stage.ts";

/** How the jobs of a group have ended. A callback's payload has it as `_group`. The numbers but `total` add up to `total`. */
export interface JobGroup {
  /** The group's number. */
  id: string;
  /** How many jobs the call had. */
  total: number;
  /** How many succeeded. */
  succeeded: number;
  /** How many failed for good. */
  failed: number;
  /** How many an operator removed before they ran. */
  removed: number;
  /** How many never ran: they expired, the gates denied them (`whenBusy: "skip"`), or the backlog had no room. */
  dropped: number;
  /** How many lost their place to a newer job of their job key. */
  replaced: number;
  /** How many ended where nobody saw how. */
  gone: number;
}

/** A payload as it is given for a callback: `_group` is added to it. */
export type WithoutGroup<T> = T extends { _group?: unknown } ? Omit<T, "_group"> : T;

/** The callback of a group in `addPolicyJobs`: the job that is added when all jobs of the call have ended for good. */
export type PolicyCallback<P extends AnyPolicy> = {
  /** The callback's policy, made by `definePolicy`. It governs one task. */
  policy: P;
  /** An object. `_group`, a {@link JobGroup}, is added to it; the policy's schema sees it as well. */
  payload: WithoutGroup<PolicyPayload<P>>;
} & Omit<JobSpec, "jobKeyMode" | "debounce" | "whenRunning">;

/** The callback of a group in `addJobs`, by its task, which must have a policy. */
export type TaskCallback = {
  /** The task's identifier. */
  identifier: string;
  /**
   * An object. `_group`, a {@link JobGroup}, is added to it.
   * @default {}
   */
  payload?: object | undefined;
} & Omit<JobSpec, "jobKeyMode" | "debounce" | "whenRunning">;

/**
 * A callback as it is sent. The policy's schema and functions see it with counts as it may get them. So they refuse it now, and
 * not when all jobs have ended.
 *
 * @param resolve makes of a job what is sent
 * @throws {ArgumentError} if its payload is no object
 * @throws {PayloadError} as adding the job would
 */
export function callbackOf(
  job: JobToAdd,
  total: number,
  resolve: (job: JobToAdd) => StageJob,
): GroupCallback {
  const { policy, payload } = job;
  if (job.spec.debounce !== undefined)
    throw new ArgumentError("then: debounce is not for a callback, which is added once: use wait");
  if (job.spec.whenRunning !== undefined)
    throw new ArgumentError("then: whenRunning is not for a callback: declare it in its policy");
  if (payload != null && (typeof payload !== "object" || Array.isArray(payload))) {
    const message = `then: payload must be an object, because the counts are added to it as _group, got ${show(payload)}`;
    throw policy ? new PayloadError(policy.identifier, message) : new ArgumentError(message);
  }
  const none = { succeeded: 0, failed: 0, removed: 0, dropped: 0, replaced: 0, gone: 0 };
  const _group: JobGroup = { id: "0", total, ...none, succeeded: total };
  const { n: _n, p: _p, cost: _c, task, ...staged } = resolve({ ...job, payload: { ...payload, _group } });
  return { ...staged, identifier: task, policy: policy?.identifier ?? null, payload: payload ?? {} };
}
