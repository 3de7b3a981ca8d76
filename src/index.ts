export type { TickResult } from "./admit/tick.ts";
export type { Queryable } from "./db/engine.ts";
export type { Figure } from "./db/rolling-up.ts";
export { survivingPool } from "./db/surviving-pool.ts";
export { type DrizzleLike, type DrizzleSql, fromDrizzle } from "./drivers/drizzle.ts";
export { fromKysely, type KyselyLike } from "./drivers/kysely.ts";
export { fromPostgresJs, type PostgresJsLike } from "./drivers/postgres-js.ts";
export { fromPrisma, type PrismaLike } from "./drivers/prisma.ts";
export * from "./errors.ts";
export { type PolicyEventMap, policyEvents } from "./events.ts";
export * from "./gates/all.ts";
export {
  addJobAdhoc,
  makePolicyUtils,
  type PolicyUtils,
  type PolicyUtilsOptions,
  quickAddJob,
} from "./host/policy-utils.ts";
export { dispatchPolicyPreset } from "./host/preset.ts";
export { type RunTickLoopOptions, runTickLoop } from "./host/run-tick-loop.ts";
export { wrapTaskList } from "./host/wrap-task-list.ts";
export { metricsHandler } from "./metrics/handler.ts";
export { type FiguresMeter, observeMetrics } from "./metrics/observe.ts";
export type { Diff, DiffOptions, PartitionDiff, Replayed, Span } from "./operate/diff.ts";
export type {
  DoctorOptions,
  DoctorThresholds,
  Finding,
  FindingId,
  Severity,
} from "./operate/doctor.ts";
export type {
  CancelledRun,
  Estimate,
  ExplainedGate,
  Explanation,
  Holder,
  Place,
  SetBy,
  Stop,
} from "./operate/explain.ts";
export type { ExportedJob, ExportOptions } from "./operate/export.ts";
export type { GroupJob, GroupsQuery, OpenGroup } from "./operate/groups.ts";
export type { HistoryQuery, JobHistory } from "./operate/history.ts";
export type { Override } from "./operate/limits.ts";
export type { PartitionStatus, PartitionsQuery } from "./operate/look.ts";
export type { Mend } from "./operate/mend.ts";
export type { Operate } from "./operate/operate.ts";
export type { Outcome } from "./operate/outcomes.ts";
export type { RefreshContextOptions } from "./operate/refresh-context.ts";
export type { RescheduleOptions } from "./operate/reschedule-jobs.ts";
export type { SearchHit, SearchQuery, SearchResult } from "./operate/search.ts";
export type {
  OldestDue,
  PolicyStatus,
  Status,
  UndeclaredPolicy,
  WaitingFor,
  WorkerStatus,
} from "./operate/status.ts";
export type { StopInForce } from "./operate/stops.ts";
export type { Repaired } from "./operate/sweep.ts";
export type {
  ByPolicy,
  Changed,
  ContextValues,
  DryRun,
  HoldTarget,
  LimiterTarget,
  LimitTarget,
  PartitionTarget,
  PolicyTarget,
  Reach,
  Stored,
  Target,
  Why,
} from "./operate/targets.ts";
export type { TickOptions } from "./operate/tick.ts";
export type { Uninstalled, UninstallOptions } from "./operate/uninstall.ts";
export type {
  AdmitOptions,
  Cancelled,
  CancelOptions,
  MoveOptions,
  ReleaseSlotsOptions,
  RemoveOptions,
  RetryOptions,
} from "./operate/verbs/jobs.ts";
export type { LimitValues, Remaining, SetLimitOptions, Synced } from "./operate/verbs/limits.ts";
export type {
  AdoptOptions,
  RemovePolicyOptions,
  Unstaged,
  UnstageOptions,
} from "./operate/verbs/policies.ts";
export type { PauseOptions } from "./operate/verbs/stops.ts";
export { exponential, fixed, list, polynomial } from "./policy/backoff.ts";
export { hashKey } from "./policy/hash-key.ts";
export type { JobSpec } from "./policy/job.ts";
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
  type Until,
} from "./policy/policy.ts";
export type { Reason } from "./policy/reasons.ts";
export { type SharedOptions, shared } from "./policy/shared.ts";
export { type RateLimit, type ResponseHeaders, rateLimitFromHeaders } from "./run/rate-limit-headers.ts";
export { RetryAfter } from "./run/retry-after.ts";
export type { DispatchPolicyOptions } from "./settings.ts";
export type { JobGroup, PolicyCallback, TaskCallback, WithoutGroup } from "./stage/group.ts";
export {
  type AddJob,
  type AddJobs,
  addPolicyJob,
  addPolicyJobs,
  type PolicyJobSpec,
} from "./stage/stage.ts";
export type { AddedJob, PlainJob, StagedJob } from "./stage/staged-job.ts";
