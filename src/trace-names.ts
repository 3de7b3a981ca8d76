// The names of spans and attributes. OpenTelemetry's conventions for messaging are still in development, and a package of
// theirs may rename what it exports. So their names are copied.

/** The tracer, by which an application can drop this package's spans. */
export const TRACER = "graphile-worker-dispatch-policy";

/** Of OpenTelemetry's conventions. */
export const ATTRIBUTES = {
  system: "messaging.system",
  operationName: "messaging.operation.name",
  operationType: "messaging.operation.type",
  destination: "messaging.destination.name",
  partition: "messaging.destination.partition.id",
  messageId: "messaging.message.id",
  errorType: "error.type",
} as const;

/** Of this package. */
export const OWN_ATTRIBUTES = {
  policy: "dispatch_policy.policy",
  stagedId: "dispatch_policy.staged_id",
  attempt: "dispatch_policy.attempt",
} as const;

/** The value of `messaging.system`. */
export const SYSTEM = "graphile_worker";

/** What the span of a run does. Its name has the task after it. */
export const PROCESS = "process";

/** The spans of a job's waits. */
export const WAITS = {
  /** From staging until the job's `runAt`. */
  scheduled: "scheduled",
  /** From then until its admission: it waits for its gates, for its turn or for workers. */
  staged: "staged",
  /** From its admission until its start: it waits in Graphile Worker. */
  queued: "queued",
} as const;
