import { suggestion } from "./closest.ts";

/**
 * The base of every error this package throws on purpose: catch it to tell ours from everybody else's.
 *
 * A refusal that belongs to normal work (a gate that denies, a target that matches nothing) is a return value, never
 * an error.
 */
export class DispatchPolicyError extends Error {
  override readonly name: string = "DispatchPolicyError";
  /** For programs: stable across releases, unlike the message. */
  readonly code: string;

  constructor(code: string, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/**
 * A value handed to the package is not allowed there: an option of the preset, an argument of an operator's verb, a
 * duration. Code `invalid_argument`. The message names the key, the value and what was expected.
 */
export class ArgumentError extends DispatchPolicyError {
  override readonly name = "ArgumentError";

  constructor(message: string, options?: ErrorOptions) {
    super("invalid_argument", message, options);
  }
}

/**
 * A policy or gate is declared wrongly. Code `invalid_policy`. Met at start-up, from `definePolicy`, `throttle`,
 * `concurrency`, `adaptiveConcurrency` and the back-off helpers; and later only from a `backoff` function that answers
 * with something that is no back-off.
 */
export class PolicyDefinitionError extends DispatchPolicyError {
  override readonly name = "PolicyDefinitionError";

  constructor(message: string, options?: ErrorOptions) {
    super("invalid_policy", message, options);
  }
}

/** One complaint of a payload's schema. */
export interface PayloadIssue {
  readonly message: string;
  /** Where in the payload; empty for the payload itself. */
  readonly path: readonly PropertyKey[];
}

/**
 * A job is refused before anything is written. Code `payload_refused`. Met where jobs are added, when the payload fails
 * the policy's schema, or when `context`, `partitionBy`, `shardBy`, `weight`, `cost`, a scope or a gate's value throws
 * (see `cause`) or gives something that cannot be used; and in a worker, from `policy.task`, when a job that was added
 * behind the policy's back (SQL, another language) fails the schema.
 */
export class PayloadError extends DispatchPolicyError {
  override readonly name = "PayloadError";
  readonly policy: string;
  /** What the schema said; empty when the schema had nothing to say. */
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
 * None of the call's jobs is staged. Inside a transaction of the caller's, which PostgreSQL has aborted by then, nothing
 * else of it is written either; a savepoint keeps the rest.
 */
export class BacklogFullError extends DispatchPolicyError {
  override readonly name = "BacklogFullError";

  constructor(message: string, options?: ErrorOptions) {
    super("backlog_full", message, options);
  }
}

/**
 * A call names a policy nobody has declared. Code `unknown_policy`. Met from operators' verbs (`pause`, `admit`,
 * `setLimit` …); the message gives the nearest right name, or lists the known ones.
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
 * A task made by `policy.task` runs in a worker that knows nothing of its policy, so that no gate would hold. Code
 * `task_not_wrapped`. Met when a job runs, and cured by the preset or by `wrapTaskList`.
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
 * The database is older or newer than this package. Code `schema_version`. Met at the first use of a database: when it
 * was never migrated, when the package was upgraded and `migrate` has not run, or when a newer release migrated it while
 * this process still runs the old one.
 */
export class SchemaVersionError extends DispatchPolicyError {
  override readonly name = "SchemaVersionError";
  readonly schema: string;
  /** The last migration in the database; null when there is none. */
  readonly found: number | null;
  /** The last migration this package brings. */
  readonly expected: number;

  constructor(at: { schema: string; found: number | null; expected: number }, options?: ErrorOptions) {
    const { schema, found, expected } = at;
    const state = found === null ? "has not been set up" : `is at migration ${found}`;
    const cure =
      found !== null && found > expected
        ? `this package knows ${expected} at most: upgrade graphile-worker-dispatch-policy in this process`
        : `this package needs ${expected}: run "graphile-worker-dispatch-policy migrate"`;
    super("schema_version", `database schema "${schema}" ${state}, ${cure}`, options);
    this.schema = schema;
    this.found = found;
    this.expected = expected;
  }
}
