import { suggestion } from "./closest.ts";

/**
 * The base of every error that this package throws on purpose. Catch it to recognise this package's errors.
 *
 * A refusal in normal work (a gate that denies, a target that matches nothing) is a return value, never an error.
 */
export class DispatchPolicyError extends Error {
  override readonly name: string = "DispatchPolicyError";
  /** For programs: unlike the message, it does not change with releases. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/**
 * A value is not allowed: an option of the preset, an argument of an operator's verb, a duration. Code
 * `invalid_argument`. The message names the key, the value and the expectation.
 */
export class ArgumentError extends DispatchPolicyError {
  override readonly name = "ArgumentError";

  constructor(message: string, options?: ErrorOptions) {
    super("invalid_argument", message, options);
  }
}

/**
 * A policy or gate is declared wrongly. Code `invalid_policy`. `definePolicy`, `throttle`, `concurrency`,
 * `adaptiveConcurrency` and the back-off helpers throw it at start-up. Later it has one cause: a `backoff` function that
 * returns no back-off.
 */
export class PolicyDefinitionError extends DispatchPolicyError {
  override readonly name = "PolicyDefinitionError";

  constructor(message: string, options?: ErrorOptions) {
    super("invalid_policy", message, options);
  }
}

/** One issue that a payload's schema found. */
export interface PayloadIssue {
  readonly message: string;
  /** The path in the payload. Empty for the payload itself. */
  readonly path: readonly PropertyKey[];
}

/**
 * A job is refused before anything is written. Code `payload_refused`.
 *
 * Adding a job throws it if JSON cannot hold the payload: a bigint, a Map, a Set, a promise, a cycle. It also does if
 * the payload fails the policy's schema, or if a function of the policy throws (see `cause`) or returns an unusable
 * value. These are `context`, `partitionBy`, `shardBy`, `weight`, `cost`, a scope, and a gate's value.
 *
 * In a worker, `policy.task` throws it if a job that was added past the policy (SQL, another language) fails the schema.
 */
export class PayloadError extends DispatchPolicyError {
  override readonly name = "PayloadError";
  readonly policy: string;
  /** The issues that the schema found. Empty if the error has another cause. */
  readonly issues: readonly PayloadIssue[];

  constructor(
    policy: string,
    message: string,
    options?: ErrorOptions & { issues?: readonly PayloadIssue[] },
  ) {
    super("payload_refused", `policy "${policy}": ${message}`, options);
    this.policy = policy;
    this.issues = options?.issues ?? [];
  }
}

/**
 * A job is refused because its policy's backlog is full: `maxPending`, with `whenFull: "reject"`. Code `backlog_full`.
 *
 * None of the call's jobs is staged. PostgreSQL has aborted the caller's transaction, if there is one. To keep the rest
 * of it, add jobs inside a savepoint.
 */
export class BacklogFullError extends DispatchPolicyError {
  override readonly name = "BacklogFullError";

  constructor(message: string, options?: ErrorOptions) {
    super("backlog_full", message, options);
  }
}

/**
 * A call names a policy that nobody has declared. Code `unknown_policy`. Operators' verbs throw it (`pause`, `admit`,
 * `setLimit` …). The message gives the nearest right name, or lists the known ones.
 */
export class UnknownPolicyError extends DispatchPolicyError {
  override readonly name = "UnknownPolicyError";
  readonly policy: string;
  readonly known: readonly string[];

  constructor(policy: string, known: readonly string[], options?: ErrorOptions) {
    const near = suggestion(policy, known, "policies");
    const all = near.startsWith(":") ? ` Known policies: ${known.join(", ")}.` : "";
    super("unknown_policy", `unknown policy "${policy}"${near}${all}`, options);
    this.policy = policy;
    this.known = known;
  }
}

/**
 * A task made by `policy.task` runs in a worker that does not have its policy, so that no limit would apply. Code
 * `task_not_wrapped`. The job fails with it. Add the preset to the worker, or wrap its tasks with `wrapTaskList`.
 */
export class UnwrappedTaskError extends DispatchPolicyError {
  override readonly name = "UnwrappedTaskError";

  constructor(policy: string, tasks: readonly string[], options?: ErrorOptions) {
    super(
      "task_not_wrapped",
      `policy "${policy}": its task ran without the policy. Add dispatchPolicyPreset({ policies }) to the worker's ` +
        "preset, or wrap its tasks with wrapTaskList(tasks, { policies }); and register the task under " +
        `${tasks.map((task) => `"${task}"`).join(" or ")}`,
      options,
    );
  }
}

/**
 * A job ran for longer than its policy's `runTimeout`. Code `run_timeout`. It is the reason of `helpers.abortSignal`, and
 * the attempt fails with it, so the job is retried as after any other failure. `cause` is what the task threw, if it threw
 * something else.
 *
 * @example
 * definePolicy("fetch", {
 *   partitionBy: "host",
 *   runTimeout: "30 seconds",
 *   backoff: (error) => (error instanceof RunTimeoutError ? "10 minutes" : "30 seconds"),
 * });
 */
export class RunTimeoutError extends DispatchPolicyError {
  override readonly name = "RunTimeoutError";
  readonly jobId: string;
  /** The policy's `runTimeout`, in milliseconds. */
  readonly timeoutMs: number;

  constructor(
    job: { readonly id: unknown; readonly task_identifier: string },
    timeoutMs: number,
    options?: ErrorOptions,
  ) {
    super(
      "run_timeout",
      `job ${job.id} of task "${job.task_identifier}" ran for longer than its runTimeout of ${timeoutMs / 1000} s`,
      options,
    );
    this.jobId = String(job.id);
    this.timeoutMs = timeoutMs;
  }
}

/**
 * An operator, or a newer job of its key (`whenRunning`), cancelled a job while it ran, or before it started. Code
 * `cancelled`. It is the reason of `helpers.abortSignal`. A run that fails after that has failed for good, with this error.
 * `cause` is what the task threw, if it threw something else. A run that succeeds has succeeded.
 *
 * @example
 * fetchPage.task(async ({ url }, { abortSignal }) => {
 *   await fetch(url, { signal: abortSignal });
 *   if (abortSignal.reason instanceof CancelledError) console.log(`stopped by ${abortSignal.reason.by}`);
 * });
 */
export class CancelledError extends DispatchPolicyError {
  override readonly name = "CancelledError";
  readonly jobId: string;
  /** Who cancelled it. */
  readonly by: string;
  /** Why. Null: nobody said. */
  readonly reason: string | null;

  constructor(
    jobId: string,
    why: { readonly by: string; readonly reason: string | null },
    options?: ErrorOptions,
  ) {
    super(
      "cancelled",
      `job ${jobId} was cancelled by ${why.by}${why.reason === null ? "" : `: ${why.reason}`}`,
      options,
    );
    this.jobId = jobId;
    this.by = why.by;
    this.reason = why.reason;
  }
}

/**
 * The connected role lacks a right. Code `missing_grant`. The first statement that needs the right throws it, with
 * PostgreSQL's error as its cause.
 *
 * Workers, `makePolicyUtils`, `addJobAdhoc` and the command `migrate` need the role that owns both schemas. The page
 * docs/production.md#security lists the grants of roles that only add jobs, operate or look.
 */
export class MissingGrantError extends DispatchPolicyError {
  override readonly name = "MissingGrantError";

  constructor(denied: string, role: string | undefined, options?: ErrorOptions) {
    super(
      "missing_grant",
      `${denied}${role === undefined ? "" : ` (the connection was made as role "${role}")`}. Connect as the role that owns ` +
        "the schemas, or grant what docs/production.md#security of graphile-worker-dispatch-policy lists for adding, " +
        "operating and looking",
      options,
    );
  }
}

/**
 * The database is older or newer than this package. Code `schema_version`. The first use of a database throws it.
 *
 * Either the database was never migrated, or the package was upgraded and `migrate` has not run since. `addPolicyJob` and
 * `addPolicyJobs` migrate nothing, because they run in the caller's transaction and with the caller's rights. Or a newer
 * release has migrated the database while this process still runs the old one. Or the package was uninstalled, and this
 * process still uses it.
 */
export class SchemaVersionError extends DispatchPolicyError {
  override readonly name = "SchemaVersionError";
  readonly schema: string;
  /** The last migration in the database. Null if a statement found that the schema, or a part of it, is not there. */
  readonly found: number | null;
  /** The last migration this package brings. */
  readonly expected: number;

  constructor(
    at: { schema: string; found: number | null; expected: number; lacks?: string },
    options?: ErrorOptions,
  ) {
    const { schema, found, expected, lacks } = at;
    const missing = `has not been set up for this release${lacks === undefined ? "" : ` (${lacks})`}`;
    const state = found === null ? missing : `is at migration ${found}`;
    const cure =
      found !== null && found > expected
        ? `this package knows ${expected} at most: upgrade graphile-worker-dispatch-policy in this process`
        : `this package needs migration ${expected}: run "graphile-worker-dispatch-policy migrate", start a worker with ` +
          "dispatchPolicyPreset, or call makePolicyUtils, as the role that owns the schema";
    super("schema_version", `database schema "${schema}" ${state}, ${cure}`, options);
    this.schema = schema;
    this.found = found;
    this.expected = expected;
  }
}

/**
 * A policy or the schema could not be removed. Code `not_removed`. The message says why, for example because worker pools
 * live, or because another session keeps jobs locked. Jobs that were moved or unstaged until then stay where they are.
 *
 * After an uninstall that did not come to its end, every policy is switched off unless worker pools live. Clear the cause, and
 * call it again.
 */
export class RemovalError extends DispatchPolicyError {
  override readonly name = "RemovalError";

  constructor(message: string, options?: ErrorOptions) {
    super("not_removed", message, options);
  }
}

/** An optional package that a call needs is not installed. Code `missing_package`. The message says what to install. */
export class MissingPackageError extends DispatchPolicyError {
  override readonly name = "MissingPackageError";

  constructor(message: string, options?: ErrorOptions) {
    super("missing_package", message, options);
  }
}
