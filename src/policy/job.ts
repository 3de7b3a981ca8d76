import type { TaskSpec } from "graphile-worker";
import {
  aDate,
  aDuration,
  arrayOf,
  check,
  checkOptions,
  oneOf,
  optional,
  positiveDuration,
  type Rule,
  show,
  text,
  wholeNumber,
} from "../checks/options.ts";
import type { Duration } from "../duration.ts";
import { ArgumentError } from "../errors.ts";
import { readDebounce } from "./debounce.ts";
import { readWhenRunning, type WhenRunning, whenRunningRule } from "./when-running.ts";

/** The task that the crontab starts every minute. It admits jobs even if every loop has died, so no policy may govern it. */
export const TICK_TASK = "dispatch_policy_tick";

/** Flags that begin with this carry a staged job's id through Graphile Worker. */
export const RESERVED_FLAG = "dispatch_policy:";

/** Graphile Worker's limit for task identifiers and queue names. */
const identifier = text(128);

/** The options that a job is added with, with the policy's defaults filled in. */
export interface JobInfo {
  readonly task: string;
  readonly queueName: string | undefined;
  readonly priority: number | undefined;
  readonly runAt: Date | undefined;
  readonly flags: readonly string[] | undefined;
  readonly jobKey: string | undefined;
}

/** Defaults for the policy's jobs. Options that a job is added with take precedence. */
export interface JobDefaults {
  /**
   * Jobs of one queue run one after the other, even if their policies differ. At most 128 characters.
   * @default none
   */
  queueName?: string | undefined;
  /**
   * Jobs with a lower number run first. A whole number, −32768 to 32767.
   * @default 0
   */
  priority?: number | undefined;
  /**
   * How many times a job may start. A whole number, 1 to 32767.
   * @default 25
   */
  maxAttempts?: number | undefined;
  /**
   * Graphile Worker's flags. Those that begin with `dispatch_policy:` are reserved.
   * @default none
   */
  flags?: readonly string[] | undefined;
}

/** The options that a job is added with, as far as a policy's functions may read them. */
export interface JobSpecification {
  readonly task: string;
  readonly queueName?: string | undefined;
  readonly priority?: number | undefined;
  readonly runAt?: Date | undefined;
  readonly flags?: readonly string[] | undefined;
  readonly jobKey?: string | undefined;
}

/** @throws {ArgumentError} if it is no task identifier, or the one that is reserved */
export function checkIdentifier(key: string, value: unknown): asserts value is string {
  check(key, value, identifier);
  if (value === TICK_TASK)
    throw new ArgumentError(`${key} must not be "${TICK_TASK}": that task is what admits jobs`);
}

/** @throws {ArgumentError} if an option is unknown, or Graphile Worker would refuse a value */
export function readJobDefaults(job: unknown): JobDefaults {
  if (job === undefined) return Object.freeze({});
  checkOptions("job", job, ["queueName", "priority", "maxAttempts", "flags"]);
  const { queueName, priority, maxAttempts, flags } = job;
  optional("job: queueName", queueName, SPECIFICATION.queueName);
  optional("job: priority", priority, SPECIFICATION.priority);
  optional("job: maxAttempts", maxAttempts, SPECIFICATION.maxAttempts);
  const read = { queueName, priority, maxAttempts, flags: readFlags(flags) };
  return Object.freeze(Object.fromEntries(Object.entries(read).filter(([, value]) => value !== undefined)));
}

function readFlags(flags: unknown): readonly string[] | undefined {
  if (flags === undefined) return undefined;
  check("job: flags", flags, SPECIFICATION.flags);
  checkFlags("job: flags", flags as string[]);
  return Object.freeze([...(flags as string[])]);
}

/** Graphile Worker's TaskSpec, in which undefined is allowed (`{ runAt: maybeDate }` compiles), and this package's. */
export interface JobSpec {
  /**
   * Jobs of one queue run one after the other, even if their policies differ. At most 128 characters.
   * @default the policy's `job.queueName`, else none
   */
  queueName?: string | undefined;
  /**
   * When the job is due. Before that time it waits in staging.
   * @default now
   */
  runAt?: Date | undefined;
  /**
   * How long until the job is due, such as `"2 hours"`. The database's clock counts, from the beginning of the transaction. Not
   * with `runAt`.
   *
   * The policy's functions do not see it.
   * @default none
   */
  wait?: Duration | undefined;
  /**
   * When the job expires: if it is not admitted by then, it is dropped.
   *
   * Drops are counted, and emitted as `dispatchPolicy:expire`. It is never admitted later. A job that has started once does not expire: its retries go on. Only for jobs of a policy. Not
   * with `expiresAfter`.
   * @default the policy's `expiresAfter`, else never
   */
  expiresAt?: Date | undefined;
  /**
   * The same as a time such as `"15 minutes"`, longer than 0. It counts from when the job is due, and at least from the
   * beginning of the transaction, by the database's clock. Not with `expiresAt`.
   * @default the policy's `expiresAfter`, else never
   */
  expiresAfter?: Duration | undefined;
  /**
   * Jobs with a lower number run first. A whole number, −32768 to 32767.
   * @default the policy's `job.priority`, else 0
   */
  priority?: number | undefined;
  /**
   * How many times the job may start. A whole number, 1 to 32767.
   * @default the policy's `job.maxAttempts`, else 25
   */
  maxAttempts?: number | undefined;
  /**
   * A new job replaces an older one of the same key, unless that one has started. At most 512 characters.
   * @default none
   */
  jobKey?: string | undefined;
  /**
   * The effect of `jobKey`. `"replace"`: the new job replaces the old one. `"preserve_run_at"`: the same, but the old
   * one's `runAt` stays. `"unsafe_dedupe"`: the new job is not added if there is an old one, even a running or failed
   * one. Not for `addPolicyJobs` and `addJobs`.
   * @default "replace"
   */
  jobKeyMode?: "replace" | "preserve_run_at" | "unsafe_dedupe" | undefined;
  /**
   * As the policy's `debounce`.
   *
   * Each add of the job's `jobKey` moves the job to `wait` from now, by the database's clock. At the latest it is due `maxWait`
   * after the first add.
   *
   * Only for jobs of a policy, with a `jobKey` and the mode `"replace"`. Not with `runAt` or `wait`.
   * @default the policy's `debounce`, else none
   */
  debounce?:
    | {
        /** How long after the newest add the job is due. Longer than 0. */
        wait: Duration;
        /** How long after the first add it is due at the latest. Not shorter than `wait`. */
        maxWait: Duration;
      }
    | undefined;
  /**
   * As the policy's `whenRunning`.
   *
   * Only for jobs of a policy that this process has, with a `jobKey`, and not with the mode `"unsafe_dedupe"`.
   * @default the policy's `whenRunning`
   */
  whenRunning?:
    | "keep"
    | "cancel"
    | {
        /** Always true: it cancels. */
        cancel: true;
        /** For how long a run that has begun may last before it is cancelled. 24 days at most. */
        minRun: Duration;
      }
    | undefined;
  /**
   * Graphile Worker's flags. Those that begin with `dispatch_policy:` are reserved.
   * @default the policy's `job.flags`, else none
   */
  flags?: string[] | undefined;
}

const SPECIFICATION = {
  queueName: identifier,
  runAt: aDate,
  wait: aDuration,
  expiresAt: aDate,
  expiresAfter: positiveDuration,
  debounce: { expects: "{ wait, maxWait }", accepts: (value) => typeof value === "object" },
  priority: wholeNumber(-32768, 32767),
  maxAttempts: wholeNumber(1, 32767),
  jobKey: text(512),
  jobKeyMode: oneOf("replace", "preserve_run_at", "unsafe_dedupe"),
  whenRunning: whenRunningRule,
  flags: arrayOf(text(1024), "strings (1 to 1024 characters, without NUL)"),
} satisfies Record<keyof JobSpec, Rule>;

/** Graphile Worker's options of a job, and those that only this package has. */
export type GivenSpecification = TaskSpec & {
  wait?: Duration;
  expiresAt?: Date;
  expiresAfter?: Duration;
  debounce?: { wait: Duration; maxWait: Duration };
  whenRunning?: WhenRunning;
};

/**
 * The options that a job is added with, without those that Graphile Worker reads as "not given": undefined, null, and an
 * empty name.
 *
 * @throws {ArgumentError} if an option is unknown, or Graphile Worker would refuse a value
 */
export function readSpecification(spec: object): GivenSpecification {
  checkOptions("a job", spec, Object.keys(SPECIFICATION));
  const given = Object.entries(spec).filter(
    ([key, value]) => value != null && (value !== "" || (key !== "queueName" && key !== "jobKey")),
  );
  for (const [key, value] of given)
    check(`a job: ${key}`, value, SPECIFICATION[key as keyof typeof SPECIFICATION]);
  const read: GivenSpecification = Object.fromEntries(given);
  if (read.runAt && read.wait)
    throw new ArgumentError(
      `a job: runAt and wait both say when it is due, leave one out; got wait ${show(read.wait)}`,
    );
  if (read.expiresAt && read.expiresAfter)
    throw new ArgumentError(
      `a job: expiresAt and expiresAfter both say when it expires, leave one out; got expiresAfter ${show(read.expiresAfter)}`,
    );
  if (read.debounce) checkDebounced(read);
  if (read.whenRunning) checkWhenRunning(read);
  return read;
}

function checkWhenRunning({ whenRunning, jobKey, jobKeyMode }: GivenSpecification): void {
  readWhenRunning("a job: whenRunning", whenRunning);
  if (!jobKey)
    throw new ArgumentError(
      `a job: jobKey is missing: whenRunning ${show(whenRunning)} is about older jobs of its key. Give a jobKey, or no whenRunning`,
    );
  if (jobKeyMode === "unsafe_dedupe")
    throw new ArgumentError(
      `a job: jobKeyMode must not be "unsafe_dedupe" beside whenRunning, got whenRunning ${show(whenRunning)}: that mode adds no job while an older one runs. Leave one of the two out`,
    );
}

function checkDebounced({ debounce, jobKey, runAt, wait }: GivenSpecification): void {
  readDebounce("a job: debounce", debounce);
  if (!jobKey)
    throw new ArgumentError(
      "a job: jobKey is missing: debounce puts the adds of a key together. Give a jobKey, or no debounce",
    );
  if (runAt || wait)
    throw new ArgumentError(
      `a job: debounce says when it is due, leave ${runAt ? "runAt" : "wait"} out; got ${show(runAt ?? wait)}`,
    );
}

/** @throws {ArgumentError} if a flag is one of this package's: the job would be taken for another staged job */
export function checkFlags(key: string, flags: readonly string[]): void {
  for (const flag of flags) {
    if (typeof flag === "string" && flag.startsWith(RESERVED_FLAG))
      throw new ArgumentError(
        `${key} must not begin with "${RESERVED_FLAG}", which is reserved, got ${show(flag)}`,
      );
  }
}

export function jobInfo(spec: JobSpecification, defaults: JobDefaults): JobInfo {
  return {
    task: spec.task,
    queueName: spec.queueName ?? defaults.queueName,
    priority: spec.priority ?? defaults.priority,
    runAt: spec.runAt,
    flags: spec.flags ?? defaults.flags,
    jobKey: spec.jobKey,
  };
}
