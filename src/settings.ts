import { checkNode } from "./checks/node.ts";
import {
  aBoolean,
  check,
  checkOptions,
  MOST_COUNTED,
  optional,
  positiveDuration,
  type Rule,
  text,
  wholeNumber,
} from "./checks/options.ts";
import { type Duration, durationMs } from "./duration.ts";
import { ArgumentError } from "./errors.ts";
import { type Ahead, readAhead } from "./policy/ahead.ts";
import { type AnyPolicy, policyDefinition } from "./policy/policy.ts";
import { makeRegistry, type Registry, sharedLimitsOf } from "./policy/registry.ts";

export const DEFAULT_SCHEMA = "dispatch_policy";

/** The options of `dispatchPolicyPreset`. */
export interface DispatchPolicyOptions {
  /** The policies of this process, which stages, admits and runs their jobs. */
  policies: readonly AnyPolicy[];
  /**
   * This package's PostgreSQL schema, at most 54 characters long. Its tables are in a second one: `dispatch_policy_internal`
   * by default, else the name with `_internal` behind it.
   * @default `DISPATCH_POLICY_SCHEMA` in the environment, else `"dispatch_policy"`
   */
  schema?: string | undefined;
  /**
   * `false`: all policies are off. Jobs are added past them, and ticks admit staged jobs past the gates.
   * @default true
   */
  enabled?: boolean | undefined;
  /**
   * Whether worker processes run tick loops, and for which policies and shards. `false`: the crontab admits jobs.
   * @default true
   */
  loop?:
    | boolean
    | {
        /**
         * The names of the policies that the loops tick.
         * @default all of `policies`
         */
        policies?: readonly string[] | undefined;
        /**
         * The shards that the loops tick. Each name has at most 255 characters.
         * @default all shards
         */
        shards?: readonly string[] | undefined;
      }
    | undefined;
  /**
   * Settings for all policies. A policy can have its own.
   * @default each option's own
   */
  defaults?:
    | {
        /**
         * After this time, a partition's admissions count half as much against it. Longer than 0.
         * @default "1 minute"
         */
        halfLife?: Duration | undefined;
        /**
         * The most jobs one tick admits per policy. A whole number, 1 or more. `null`: no budget.
         * @default null
         */
        tickAdmissionBudget?: number | null | undefined;
        /**
         * The most jobs one tick admits per partition. A whole number, 1 or more.
         * @default 100
         */
        admissionBatchSize?: number | undefined;
        /**
         * How many jobs of a policy may be in flight beyond the worker slots. A duration: as many as the workers finish
         * in that time. A whole number, 0 or more: that many. `null`: no bound.
         *
         * A job that is staged waits behind the jobs ahead, however fair its turn. With too few of them, workers wait for
         * a tick.
         * @default "500 milliseconds"
         */
        ahead?: number | Duration | null | undefined;
      }
    | undefined;
  /**
   * The most partitions that one tick claims. A whole number, 1 or more.
   * @default 50
   */
  partitionBatchSize?: number | undefined;
  /**
   * How long one run of the crontab task `dispatch_policy_tick` goes on while its passes admit more.
   *
   * The time is checked after each pass, and no pass is cut short. When it is over, the run gives each remaining policy
   * one pass and ends. That is no error: the next run, or a loop, admits the rest. If the task's payload has a longer
   * `for`, that counts instead. The option does not apply to worker loops and `runTickLoop`.
   * @default "25 seconds"
   */
  tickMaxDuration?: Duration | undefined;
  /**
   * The shortest time between two ticks of a loop. At most `loopHeartbeat`.
   * @default "2 milliseconds"
   */
  minTickInterval?: Duration | undefined;
  /**
   * The longest sleep of a loop that nothing wakes. The leader in a worker pool looks every 3.5 seconds at the latest.
   * @default "15 seconds"
   */
  loopHeartbeat?: Duration | undefined;
  /**
   * The longest time between two heartbeats of a worker pool.
   * @default "15 seconds"
   */
  workerHeartbeatInterval?: Duration | undefined;
  /**
   * A worker pool that is silent for this long counts as dead. At least three times `workerHeartbeatInterval`.
   * @default "1 minute"
   */
  workerStaleAfter?: Duration | undefined;
  /**
   * The time between two sweeps, which repair what crashes left.
   * @default "30 seconds"
   */
  sweepInterval?: Duration | undefined;
  /**
   * Sweeps delete a partition that is unused for this long. No capacity state is lost.
   * @default "1 day"
   */
  partitionInactiveAfter?: Duration | undefined;
  /**
   * Sweeps delete audit rows that are older than this, in steps of 10,000 rows. Longer than 0. Every process that sweeps
   * goes by its own setting, so give all workers the same.
   * @default "90 days"
   */
  keepAuditFor?: Duration | undefined;
  /**
   * Sweeps delete rows of the view `minutes` that are older than this. Longer than 0. Give all workers the same.
   * @default "7 days"
   */
  metricsRetention?: Duration | undefined;
}

/** The checked options, with defaults filled in and durations in milliseconds. */
export interface Settings {
  readonly registry: Registry;
  /** False in a process that has policies but no preset, and therefore no settings for their ticks. */
  readonly fromPreset: boolean;
  readonly schema: string;
  readonly enabled: boolean;
  readonly loop: { policies: readonly string[]; shards: readonly string[] | null } | null;
  readonly defaults: {
    halfLifeSeconds: number;
    tickAdmissionBudget: number | null;
    admissionBatchSize: number;
    ahead: Ahead;
  };
  readonly partitionBatchSize: number;
  readonly tickMaxDurationMs: number;
  readonly minTickIntervalMs: number;
  readonly loopHeartbeatMs: number;
  readonly workerHeartbeatIntervalMs: number;
  readonly workerStaleAfterMs: number;
  readonly sweepIntervalMs: number;
  readonly partitionInactiveAfterMs: number;
  readonly keepAuditForMs: number;
  readonly metricsRetentionMs: number;
}

const DURATIONS = {
  tickMaxDuration: "25 seconds",
  minTickInterval: "2 milliseconds",
  loopHeartbeat: "15 seconds",
  workerHeartbeatInterval: "15 seconds",
  workerStaleAfter: "1 minute",
  sweepInterval: "30 seconds",
  partitionInactiveAfter: "1 day",
  keepAuditFor: "90 days",
  metricsRetention: "7 days",
} as const satisfies Partial<Record<keyof DispatchPolicyOptions, Duration>>;

const AHEAD: Ahead = { jobs: null, seconds: 0.5 };

const OPTIONS = [
  "policies",
  "schema",
  "enabled",
  "loop",
  "defaults",
  "partitionBatchSize",
  ...Object.keys(DURATIONS),
];
/** PostgreSQL's 63 bytes, less `_internal`. */
const schemaName = text(54);
const anInteger = wholeNumber(1, MOST_COUNTED);
const listOfPolicies: Rule = { expects: "an array of policies", accepts: Array.isArray };

/**
 * @throws {ArgumentError} naming key, value and expectation
 * @throws {DispatchPolicyError} if this Node is too old
 */
export function readSettings(options: DispatchPolicyOptions, fromPreset = true): Settings {
  checkNode();
  checkOptions("dispatchPolicyPreset", options, OPTIONS);
  check("policies", options.policies, listOfPolicies);
  const registry = makeRegistry(options.policies);
  const settings: Settings = {
    registry,
    fromPreset,
    schema: schemaOf(options.schema),
    enabled: optional("enabled", options.enabled, aBoolean) ?? true,
    loop: readLoop(options.loop, registry),
    defaults: readDefaults(options.defaults),
    partitionBatchSize: optional("partitionBatchSize", options.partitionBatchSize, anInteger) ?? 50,
    tickMaxDurationMs: duration(options, "tickMaxDuration"),
    minTickIntervalMs: duration(options, "minTickInterval"),
    loopHeartbeatMs: duration(options, "loopHeartbeat"),
    workerHeartbeatIntervalMs: duration(options, "workerHeartbeatInterval"),
    workerStaleAfterMs: duration(options, "workerStaleAfter"),
    sweepIntervalMs: duration(options, "sweepInterval"),
    partitionInactiveAfterMs: duration(options, "partitionInactiveAfter"),
    keepAuditForMs: duration(options, "keepAuditFor"),
    metricsRetentionMs: duration(options, "metricsRetention"),
  };
  checkTogether(settings);
  return settings;
}

export function schemaOf(schema: string | undefined): string {
  const name = schema ?? process.env.DISPATCH_POLICY_SCHEMA ?? DEFAULT_SCHEMA;
  check("schema", name, schemaName);
  return name;
}

/** The settings of a policy's ticks that a process declares in the database. Undefined: as another process declared it. */
export interface PolicySettings {
  halfLifeSeconds?: number | null | undefined;
  tickAdmissionBudget?: number | null | undefined;
  admissionBatchSize?: number | undefined;
  ahead?: Ahead | undefined;
  enabled?: boolean | undefined;
}

/**
 * A policy's settings: its own, else the preset's. A process without a preset declares only the policy's own, and leaves
 * the rest as the workers declared it.
 */
export function policySettings(policy: AnyPolicy, settings: Settings): PolicySettings {
  const own = policyDefinition(policy);
  const { defaults, fromPreset } = settings;
  if (!fromPreset) {
    return {
      halfLifeSeconds: own.halfLifeSeconds,
      tickAdmissionBudget: own.tickAdmissionBudget ?? undefined,
      admissionBatchSize: own.admissionBatchSize ?? undefined,
      ahead: own.ahead,
      enabled: own.enabled ? undefined : false,
    };
  }
  return {
    halfLifeSeconds: own.halfLifeSeconds === undefined ? defaults.halfLifeSeconds : own.halfLifeSeconds,
    tickAdmissionBudget: own.tickAdmissionBudget ?? defaults.tickAdmissionBudget,
    admissionBatchSize: own.admissionBatchSize ?? defaults.admissionBatchSize,
    ahead: own.ahead ?? defaults.ahead,
    enabled: own.enabled && settings.enabled,
  };
}

function duration(options: DispatchPolicyOptions, key: keyof typeof DURATIONS): number {
  return durationMs(optional(key, options[key], positiveDuration) ?? DURATIONS[key]);
}

/** `_declare_policy` has the same defaults for a process without settings. `test/sql/said-twice.test.ts` compares both. */
function readDefaults(defaults: DispatchPolicyOptions["defaults"] = {}): Settings["defaults"] {
  checkOptions("defaults", defaults, ["halfLife", "tickAdmissionBudget", "admissionBatchSize", "ahead"]);
  const { halfLife, tickAdmissionBudget, admissionBatchSize, ahead } = defaults;
  if (tickAdmissionBudget != null) check("defaults.tickAdmissionBudget", tickAdmissionBudget, anInteger);
  return {
    halfLifeSeconds:
      durationMs(optional("defaults.halfLife", halfLife, positiveDuration) ?? "1 minute") / 1000,
    tickAdmissionBudget: tickAdmissionBudget ?? null,
    admissionBatchSize: optional("defaults.admissionBatchSize", admissionBatchSize, anInteger) ?? 100,
    ahead: readAhead("defaults.ahead", ahead) ?? AHEAD,
  };
}

function readLoop(loop: DispatchPolicyOptions["loop"], registry: Registry): Settings["loop"] {
  if (loop === false) return null;
  const all = registry.policies.map((policy) => policy.identifier);
  if (loop === undefined || loop === true) return { policies: all, shards: null };
  checkOptions("loop", loop, ["policies", "shards"]);
  const policies = loop.policies?.flatMap((name) => {
    const limits = sharedLimitsOf(registry.named(name)).map(({ identifier }) => identifier);
    return [name, ...limits]; // their loops announce what operators set
  });
  for (const shard of loop.shards ?? []) check("loop.shards", shard, text(255));
  return { policies: policies ? [...new Set(policies)] : all, shards: loop.shards ?? null };
}

function checkTogether(settings: Settings): void {
  if (settings.workerStaleAfterMs < 3 * settings.workerHeartbeatIntervalMs) {
    throw new ArgumentError(
      `workerStaleAfter must be at least three times workerHeartbeatInterval (${settings.workerHeartbeatIntervalMs} ms), ` +
        `got ${settings.workerStaleAfterMs} ms: a single lost heartbeat would count a worker dead`,
    );
  }
  if (settings.minTickIntervalMs > settings.loopHeartbeatMs) {
    throw new ArgumentError(
      `minTickInterval (${settings.minTickIntervalMs} ms) must not be longer than loopHeartbeat ` +
        `(${settings.loopHeartbeatMs} ms)`,
    );
  }
}
