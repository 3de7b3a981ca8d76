import {
  aBoolean,
  aFunction,
  callOption,
  check,
  checkOptions,
  MOST_COUNTED,
  numberFromZero,
  oneOf,
  optional,
  positiveDuration,
  positiveNumber,
  type Rule,
  show,
  text,
  wholeNumber,
} from "../checks/options.ts";
import {
  DURATION_EXPECTED,
  type Duration,
  durationMs,
  durationSeconds,
  isDuration,
  LONGEST_TIMER_MS,
} from "../duration.ts";
import { ArgumentError } from "../errors.ts";
import { concurrency, type Gate, gateFactories } from "../gates/index.ts";
import { type Ahead, readAhead } from "./ahead.ts";
import type { BackoffFunction } from "./backoff.ts";
import { type Classes, readClasses } from "./class.ts";
import { type Debounce, readDebounce } from "./debounce.ts";
import { checkIdentifier, type JobDefaults, readJobDefaults } from "./job.ts";
import { isStandardSchema, type StandardSchema } from "./standard-schema.ts";
import { readWhenRunning } from "./when-running.ts";

/** A policy's options, checked and read once, so that no job has to do that again. */
export interface Declaration extends Classes {
  readonly name: string;
  readonly tasks: readonly string[];
  readonly version: number;
  readonly enabled: boolean;
  readonly schema: StandardSchema | undefined;
  readonly context: ContextFunction | undefined;
  readonly partitionBy: ContextFunction | readonly string[];
  readonly shardBy: ContextFunction | undefined;
  readonly weight: number | ContextFunction;
  readonly cost: number | ContextFunction;
  readonly gates: readonly Gate[];
  readonly halfLifeSeconds: number | null | undefined;
  readonly fairBy: "jobs" | "work";
  /** Null: the usual order. */
  readonly order: Order | null;
  /** Gives a job's own deadline. Null: it is the time at which the job expires. */
  readonly deadline: ContextFunction | null;
  readonly tickAdmissionBudget: number | null | undefined;
  readonly admissionBatchSize: number | null | undefined;
  readonly ahead: Ahead | undefined;
  readonly job: JobDefaults;
  readonly retries: "restage" | "bypass";
  readonly unmanaged: "enforce" | "run" | "reject";
  readonly backoff: BackoffFunction | undefined;
  readonly breaker: Breaker | undefined;
  readonly refundAttempt: boolean;
  readonly slotTimeoutSeconds: number | null;
  /** Null: none. */
  readonly runTimeoutMs: number | null;
  readonly maxPending: MaxPending | undefined;
  readonly whenBusy: "wait" | "skip" | "delay";
  /** Of `"delay"`, else null. */
  readonly busyDelaySeconds: number | null;
  /** Null: its jobs do not expire. */
  readonly expiresAfterSeconds: number | null;
  readonly debounce: Debounce | undefined;
  /** After so long a run is cancelled by a newer job of its key. Null: it never is. */
  readonly cancelsAfterSeconds: number | null;
  /** Null: a job key is not remembered after its job. */
  readonly uniqueForSeconds: number | null;
  readonly load: Kept | undefined;
  readonly history: Kept | undefined;
}

/** For how long something is kept, in seconds. */
export interface Kept {
  readonly keepSeconds: number;
}

/** How the jobs of a partition follow each other. */
export type Order = "strict" | "deadline";

/** Null: no bound. */
export interface MaxPending {
  readonly partition: number | null;
  readonly policy: number | null;
  readonly whenFull: "reject" | "drop_oldest" | "drop_newest";
  readonly strict: boolean;
}

/** In seconds. */
export interface Breaker {
  readonly failures: number;
  readonly withinSeconds: number;
  readonly cooldownSeconds: number;
}

export type ContextFunction = (...args: never[]) => unknown;

const OPTIONS = [
  "tasks",
  "payload",
  "context",
  "partitionBy",
  "shardBy",
  "weight",
  "class",
  "classShare",
  "cost",
  "gates",
  "fairness",
  "order",
  "tickAdmissionBudget",
  "admissionBatchSize",
  "ahead",
  "job",
  "retries",
  "unmanaged",
  "backoff",
  "breaker",
  "refundAttempt",
  "slotTimeout",
  "runTimeout",
  "maxPending",
  "whenBusy",
  "expiresAfter",
  "debounce",
  "whenRunning",
  "uniqueFor",
  "load",
  "history",
  "version",
  "enabled",
];

/** @throws {ArgumentError} naming option, value and expectation. The caller adds the policy's name. */
export function readDeclaration(name: string, options: unknown): Declaration {
  checkOptions("definePolicy", options, OPTIONS);
  const { payload, context, shardBy, backoff } = options;
  if (payload !== undefined && !isStandardSchema(payload))
    throw new ArgumentError(
      `payload must be a Standard Schema (zod 3.24+, zod 4, valibot, arktype), got ${show(payload)} without "~standard"`,
    );
  const { order, deadline } = readOrder(options.order);
  const gates = order === "strict" ? inStrictOrder(options) : readGates(options.gates);
  const fairness = readFairness(options.fairness);
  const sharing = gates.find((gate) => gate.shared !== undefined);
  if (sharing !== undefined && fairness.halfLifeSeconds === null)
    throw new ArgumentError(
      `fairness must not be null with the shared limit "${sharing.name}", got null: policies share it by fair shares`,
    );
  return Object.freeze({
    name,
    tasks: readTasks(name, options.tasks),
    version: optional("version", options.version, wholeNumber(0)) ?? 0,
    enabled: optional("enabled", options.enabled, aBoolean) ?? true,
    schema: payload,
    context: optional("context", context, aFunction),
    partitionBy: readPartitionBy(options.partitionBy, context !== undefined),
    shardBy: optional("shardBy", shardBy, aFunction),
    weight: readValue("weight", options.weight, positiveNumber),
    ...readClasses(options, sharing?.name),
    cost: readValue("cost", options.cost, numberFromZero),
    gates,
    ...fairness,
    order,
    deadline,
    tickAdmissionBudget: readCount("tickAdmissionBudget", options.tickAdmissionBudget),
    admissionBatchSize: readCount("admissionBatchSize", options.admissionBatchSize),
    ahead: readAhead("ahead", options.ahead),
    job: readJobDefaults(options.job),
    retries: optional("retries", options.retries, oneOf("restage", "bypass")) ?? "restage",
    unmanaged: optional("unmanaged", options.unmanaged, oneOf("enforce", "run", "reject")) ?? "enforce",
    backoff: optional("backoff", backoff, aFunction),
    breaker: readBreaker(options.breaker),
    refundAttempt: readRefundAttempt(options),
    slotTimeoutSeconds: readSeconds("slotTimeout", options.slotTimeout),
    runTimeoutMs: readRunTimeout(options),
    maxPending: readMaxPending(options.maxPending),
    ...readWhenBusy(options.whenBusy, gates),
    expiresAfterSeconds: readSeconds("expiresAfter", options.expiresAfter),
    debounce: readDebounce("debounce", options.debounce),
    cancelsAfterSeconds: readWhenRunning("whenRunning", options.whenRunning),
    uniqueForSeconds: readUniqueFor(options),
    load: readKept("load", options.load, { most: "1 day", mostSeconds: DAY_SECONDS, such: "1 hour" }),
    history: readKept("history", options.history, {
      ...{ most: "1 year", mostSeconds: 366 * DAY_SECONDS, such: "7 days" },
    }),
  } as Declaration);
}

function readOrder(order: unknown): Pick<Declaration, "order" | "deadline"> {
  if (typeof order !== "object" || order === null) {
    const named = oneOf("strict", "deadline");
    optional("order", order, {
      ...named,
      expects: `${named.expects}, or { deadline: a function of the context }`,
    });
    return { order: (order as Order | undefined) ?? null, deadline: null };
  }
  checkOptions("order", order, ["deadline"]);
  check("order: deadline", order.deadline, aFunction);
  return { order: "deadline", deadline: order.deadline as ContextFunction };
}

/** It has no numbers that an operator may set: the order would end with it. */
const ONE_AT_A_TIME: Gate = Object.freeze({
  ...concurrency({ name: "strict_order", max: 1 }),
  overrides: Object.freeze({}),
});

/** The gates of a policy with strict order. @throws {ArgumentError} if another option would break the order */
function inStrictOrder(options: Record<string, unknown>): readonly Gate[] {
  const refused = (option: string, expected: string, got: unknown, why: string) =>
    new ArgumentError(`${option} must be ${expected} if order is "strict", got ${show(got)}: ${why}`);
  const { retries, unmanaged, whenBusy = "wait" } = options;
  if (retries === "bypass")
    throw refused("retries", '"restage"', retries, "Graphile Worker would retry a job after later ones");
  if (unmanaged === "run")
    throw refused("unmanaged", '"enforce" or "reject"', unmanaged, "such jobs would run beside others");
  if (whenBusy !== "wait")
    throw refused("whenBusy", '"wait"', whenBusy, "each job has to wait for the one before it");
  const gates = readGates(options.gates);
  for (const { name, kind, scope, constants } of gates) {
    if (name === ONE_AT_A_TIME.name)
      throw new ArgumentError(
        `gates: the name "${name}" is that of the gate that order: "strict" brings, give yours another`,
      );
    if (kind === "concurrency" && scope === "partition" && Number(constants.max) > 1)
      throw refused(`max of ${name}`, "0 or 1", constants.max, "a partition runs one job at a time");
  }
  return Object.freeze([...gates, ONE_AT_A_TIME]);
}

/** With less, a few jobs that are denied again and again keep the tick loop busy all the time. */
const LEAST_DELAY_MS = 1000;

const delay: Rule = {
  expects: `${DURATION_EXPECTED}, 1 second or more`,
  accepts: (value) => isDuration(value) && durationMs(value) >= LEAST_DELAY_MS,
};

const busy: Rule = {
  expects: '"wait", "skip" or { delay }',
  accepts: (value) => value === "wait" || value === "skip" || (typeof value === "object" && value !== null),
};

function readWhenBusy(
  whenBusy: unknown,
  gates: readonly Gate[],
): Pick<Declaration, "whenBusy" | "busyDelaySeconds"> {
  if (whenBusy === undefined || whenBusy === "wait") return { whenBusy: "wait", busyDelaySeconds: null };
  check("whenBusy", whenBusy, busy);
  const skips = whenBusy === "skip";
  if (gates.length === 0)
    throw new ArgumentError(
      `whenBusy must be "wait" without gates, got ${skips ? '"skip": it drops' : "a delay: it postpones"} jobs that gates deny, and there are none`,
    );
  if (skips) return { whenBusy: "skip", busyDelaySeconds: null };
  checkOptions("whenBusy", whenBusy, ["delay"]);
  check("whenBusy: delay", whenBusy.delay, delay);
  return { whenBusy: "delay", busyDelaySeconds: durationSeconds(whenBusy.delay as Duration) };
}

function readTasks(name: string, tasks: unknown): readonly string[] {
  if (tasks === undefined) return Object.freeze([name]);
  if (!Array.isArray(tasks) || tasks.length === 0)
    throw new ArgumentError(`tasks must be an array of at least one task identifier, got ${show(tasks)}`);
  tasks.forEach((task, index) => {
    checkIdentifier(`tasks[${index}]`, task);
    if (tasks.indexOf(task) !== index) throw new ArgumentError(`tasks must differ, got "${task}" twice`);
  });
  return Object.freeze([...tasks]);
}

function readPartitionBy(partitionBy: unknown, hasContext: boolean): ContextFunction | readonly string[] {
  if (typeof partitionBy === "function") {
    if (hasContext) return partitionBy as ContextFunction;
    throw new ArgumentError(
      "partitionBy must be a path into the payload if there is no context, got a function: it would always get {}",
    );
  }
  const paths = Array.isArray(partitionBy) ? partitionBy : [partitionBy];
  const expects = 'a function of the context, a path such as "account.id", or an array of paths';
  if (paths.length === 0) throw new ArgumentError(`partitionBy must be ${expects}, got an empty array`);
  for (const path of paths) check("partitionBy", path, { expects, accepts: isPath });
  return Object.freeze([...paths]);
}

function isPath(path: unknown): boolean {
  return typeof path === "string" && text(1024).accepts(path) && path.split(".").every((step) => step !== "");
}

function readValue(key: string, value: unknown, rule: Rule): number | ContextFunction {
  if (typeof value === "function") return value as ContextFunction;
  const expects = `${rule.expects}, or a function of the context`;
  return (optional(key, value, { ...rule, expects }) as number | undefined) ?? 1;
}

function readCount(key: string, value: unknown): number | null | undefined {
  if (value !== null && value !== undefined) check(key, value, wholeNumber(1, MOST_COUNTED));
  return value as number | null | undefined;
}

function readFairness(fairness: unknown): Pick<Declaration, "halfLifeSeconds" | "fairBy"> {
  if (fairness === null || fairness === undefined) return { halfLifeSeconds: fairness, fairBy: "jobs" };
  checkOptions("fairness", fairness, ["halfLife", "by"]);
  const { halfLife, by } = fairness as { halfLife?: Duration; by?: "jobs" | "work" };
  optional("fairness: by", by, oneOf("jobs", "work"));
  if (halfLife !== undefined || by === undefined) check("fairness: halfLife", halfLife, positiveDuration);
  return {
    halfLifeSeconds: halfLife === undefined ? undefined : durationSeconds(halfLife),
    fairBy: by ?? "jobs",
  };
}

function readBreaker(breaker: unknown): Breaker | undefined {
  if (breaker === undefined) return undefined;
  checkOptions("breaker", breaker, ["failures", "within", "cooldown"]);
  const { failures, within, cooldown } = breaker;
  check("breaker: failures", failures, wholeNumber(1, MOST_COUNTED));
  check("breaker: within", within, positiveDuration);
  check("breaker: cooldown", cooldown, positiveDuration);
  return Object.freeze({
    failures: failures as number,
    withinSeconds: durationSeconds(within as Duration),
    cooldownSeconds: durationSeconds(cooldown as Duration),
  });
}

function readMaxPending(maxPending: unknown): MaxPending | undefined {
  if (maxPending === undefined) return undefined;
  checkOptions("maxPending", maxPending, ["partition", "policy", "whenFull", "strict"]);
  const { partition, policy, whenFull = "reject", strict = false } = maxPending;
  optional("maxPending: partition", partition, wholeNumber(1, MOST_COUNTED));
  optional("maxPending: policy", policy, wholeNumber(1, MOST_COUNTED));
  if (partition === undefined && policy === undefined)
    throw new ArgumentError("maxPending must have partition, policy or both, got neither");
  check("maxPending: whenFull", whenFull, oneOf("reject", "drop_oldest", "drop_newest"));
  check("maxPending: strict", strict, aBoolean);
  return Object.freeze({
    partition: partition ?? null,
    policy: policy ?? null,
    whenFull,
    strict,
  }) as MaxPending;
}

const DAY_SECONDS = 86_400;

/** The options `load` and `history`: for how long it is kept. */
function readKept(
  key: "load" | "history",
  kept: unknown,
  { most, mostSeconds, such }: { readonly most: string; readonly mostSeconds: number; readonly such: string },
): Kept | undefined {
  if (kept === undefined) return undefined;
  checkOptions(key, kept, ["keep"]);
  check(`${key}: keep`, kept.keep, {
    expects: `a duration of 1 minute to ${most}, such as "${such}"`,
    accepts: (value) => {
      if (!positiveDuration.accepts(value)) return false;
      const seconds = durationSeconds(value as Duration);
      return seconds >= 60 && seconds <= mostSeconds;
    },
  });
  return Object.freeze({ keepSeconds: durationSeconds(kept.keep as Duration) });
}

function readRefundAttempt({ refundAttempt, retries }: Record<string, unknown>): boolean {
  const gives = optional("refundAttempt", refundAttempt, aBoolean) ?? false;
  if (gives && retries === "bypass")
    throw new ArgumentError(
      'refundAttempt must be false if retries is "bypass", got true: Graphile Worker alone counts attempts then',
    );
  return gives as boolean;
}

/** Null: none was given. */
function readSeconds(key: string, duration: unknown): number | null {
  if (duration === undefined) return null;
  check(key, duration, positiveDuration);
  return durationSeconds(duration as Duration);
}

function readUniqueFor({ uniqueFor, retries }: Record<string, unknown>): number | null {
  const seconds = readSeconds("uniqueFor", uniqueFor);
  if (seconds !== null && seconds > 366 * DAY_SECONDS)
    throw new ArgumentError(
      `uniqueFor must be 1 year or less, got ${show(uniqueFor)}: each key is stored for that time`,
    );
  if (seconds !== null && retries === "bypass")
    throw new ArgumentError(
      `uniqueFor must be left out if retries is "bypass", got ${show(uniqueFor)}: a job that succeeds at its retry would not be remembered. Leave one of the two out`,
    );
  return seconds;
}

function readRunTimeout({ runTimeout, slotTimeout }: Record<string, unknown>): number | null {
  if (runTimeout === undefined) return null;
  check("runTimeout", runTimeout, positiveDuration);
  const ms = durationMs(runTimeout as Duration);
  if (ms > LONGEST_TIMER_MS)
    throw new ArgumentError(`runTimeout must be 24 days or less, got ${show(runTimeout)}`);
  if (slotTimeout !== undefined && ms >= durationMs(slotTimeout as Duration))
    throw new ArgumentError(
      `runTimeout must be shorter than slotTimeout (${show(slotTimeout)}), got ${show(runTimeout)}: the slot would be freed first`,
    );
  return ms;
}

function readGates(option: unknown): readonly Gate[] {
  const gates =
    typeof option === "function"
      ? callOption("gates", option as ContextFunction, gateFactories)
      : option === undefined
        ? []
        : option;
  if (!Array.isArray(gates))
    throw new ArgumentError(
      `gates must be an array of gates, or a function that returns one, got ${show(gates)}`,
    );
  const names = new Set<string>();
  gates.forEach((gate: Gate, index) => {
    if (typeof gate?.resolve !== "function")
      throw new ArgumentError(
        `gates[${index}] must be made by ${Object.keys(gateFactories).join(", ")}, got ${show(gate)}`,
      );
    if (names.has(gate.name))
      throw new ArgumentError(
        `gates must differ in name, got "${gate.name}" twice: give one of them a name of its own`,
      );
    names.add(gate.name);
  });
  return Object.freeze([...gates]);
}
