export { exponential, fixed, list } from "./backoff.ts";
export type { Queryable } from "./db/engine.ts";
export * from "./errors.ts";
export { type PolicyEventMap, policyEvents } from "./events.ts";
export { adaptiveConcurrency, concurrency, throttle } from "./gates/index.ts";
export type { LimitValues, Override } from "./operate/limits.ts";
export type { Reason } from "./operate/look.ts";
export type { PolicyStatus, WorkerStatus } from "./operate/status.ts";
export type {
  Changed,
  LimiterTarget,
  PartitionTarget,
  PolicyTarget,
  Target,
  Until,
  Why,
} from "./operate/targets.ts";
export {
  type AnyPolicy,
  type Backoff,
  type DispatchPolicyHelpers,
  type Duration,
  definePolicy,
  type JobDefaults,
  type JobInfo,
  type Json,
  type JsonObject,
  type Policy,
  type PolicyJobHelpers,
  type PolicyOptions,
  type PolicyPayload,
  type TaskIdentifier,
} from "./policy.ts";
export {
  addJobAdhoc,
  makePolicyUtils,
  type Operate,
  type PolicyUtils,
  type PolicyUtilsOptions,
  quickAddJob,
} from "./policy-utils.ts";
export { dispatchPolicyPreset } from "./preset.ts";
export { RetryAfter } from "./retry-after.ts";
export { type RunTickLoopOptions, runTickLoop } from "./run-tick-loop.ts";
export type { DispatchPolicyOptions } from "./settings.ts";
export {
  type AddJob,
  type AddJobs,
  addPolicyJob,
  addPolicyJobs,
  type JobSpec,
  type PolicyJobSpec,
} from "./stage.ts";
export type { AddedJob, PlainJob, StagedJob } from "./staged-job.ts";
export type { Repaired } from "./sweep.ts";
export type { TickResult } from "./tick.ts";
export { wrapTaskList } from "./wrap-task-list.ts";
