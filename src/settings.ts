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
import { type AnyPolicy, policyDefinition } from "./policy/policy.ts";
import { makeRegistry, type Registry } from "./policy/registry.ts";

export const DEFAULT_SCHEMA = "dispatch_policy";

/** What `dispatchPolicyPreset` takes. */
export interface DispatchPolicyOptions {
  /** The policies this process knows: it stages, admits and runs their jobs. */
  policies: readonly AnyPolicy[];
  /** PostgreSQL schema of this package. Default: `DISPATCH_POLICY_SCHEMA` in the environment, else "dispatch_policy". */
  schema?: string | undefined;
  /** `false`: adds pass through, and ticks empty staging ungated. Default true. */
  enabled?: boolean | undefined;
  /** Whether worker processes run the tick loop, and for what. Default true; false leaves admission to the crontab. */
  loop?:
    | boolean
    | { policies?: readonly string[] | undefined; shards?: readonly string[] | undefined }
    | undefined;
  defaults?:
    | {
        /** How fast a partition's past admissions stop counting against it. Default "1 minute". */
        halfLife?: Duration | undefined;
        /** The most jobs one tick admits per policy. Default null: no budget. */
        tickAdmissionBudget?: number | null | undefined;
        /** The most jobs one tick admits per partition. Default 100. */
        admissionBatchSize?: number | undefined;
        /**
         * How many jobs of a policy may be in flight beyond the workers' slots. Default: the largest of twice the slots,
         * 100, and what the workers finished in the last second. Null: no bound.
         */
        ahead?: number | null | undefined;
      }
    | undefined;
  /** The most partitions one tick looks at. Default 50. */
  partitionBatchSize?: number | undefined;
  /**
   * How long one run of the crontab task `dispatch_policy_tick` goes on while its passes admit more. Default "25 seconds".
   *
   * The time is checked after each pass, and no pass is cut short. After it, the run gives each policy that is left one
   * pass and ends. That is no error: the next run, or a loop, admits the rest. If the task's payload has a longer `for`,
   * that counts instead. Worker loops and `runTickLoop` are not bounded by it.
   */
  tickMaxDuration?: Duration | undefined;
  /** The shortest time between two ticks of a loop. Default "2 milliseconds". */
  minTickInterval?: Duration | undefined;
  /** How long a loop sleeps at most when nothing wakes it. Default "15 seconds". */
  loopHeartbeat?: Duration | undefined;
  /** How often a worker pool says that it is alive, at the latest. Default "15 seconds". */
  workerHeartbeatInterval?: Duration | undefined;
  /** After how long a silent worker pool counts as dead; at least three heartbeats. Default "1 minute". */
  workerStaleAfter?: Duration | undefined;
  /** How often what went wrong is looked for and repaired. Default "30 seconds". */
  sweepInterval?: Duration | undefined;
  /** How long an unused partition is remembered. Default "1 day". */
  partitionInactiveAfter?: Duration | undefined;
}

/** The options, checked, with defaults filled in and durations in milliseconds. */
export interface Settings {
  readonly registry: Registry;
  /** False in a process that has policies but no preset, and so does not know how they are to be ticked. */
  readonly fromPreset: boolean;
  readonly schema: string;
  readonly enabled: boolean;
  readonly loop: { policies: readonly string[]; shards: readonly string[] | null } | null;
  readonly defaults: {
    halfLifeSeconds: number;
    tickAdmissionBudget: number | null;
    admissionBatchSize: number;
    ahead: number | null;
    aheadAuto: boolean;
  };
  readonly partitionBatchSize: number;
  readonly tickMaxDurationMs: number;
  readonly minTickIntervalMs: number;
  readonly loopHeartbeatMs: number;
  readonly workerHeartbeatIntervalMs: number;
  readonly workerStaleAfterMs: number;
  readonly sweepIntervalMs: number;
  readonly partitionInactiveAfterMs: number;
}

const DURATIONS = {
  tickMaxDuration: "25 seconds",
  minTickInterval: "2 milliseconds",
  loopHeartbeat: "15 seconds",
  workerHeartbeatInterval: "15 seconds",
  workerStaleAfter: "1 minute",
  sweepInterval: "30 seconds",
  partitionInactiveAfter: "1 day",
} as const satisfies Partial<Record<keyof DispatchPolicyOptions, Duration>>;

const OPTIONS = [
  "policies",
  "schema",
  "enabled",
  "loop",
  "defaults",
  "partitionBatchSize",
  ...Object.keys(DURATIONS),
];
const schemaName = text(63);
const anInteger = wholeNumber(1, MOST_COUNTED);
const listOfPolicies: Rule = { expects: "an array of policies", accepts: Array.isArray };

/** @throws {ArgumentError} naming key, value and expectation */
export function readSettings(options: DispatchPolicyOptions, fromPreset = true): Settings {
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
  };
  checkTogether(settings);
  return settings;
}

export function schemaOf(schema: string | undefined): string {
  const name = schema ?? process.env.DISPATCH_POLICY_SCHEMA ?? DEFAULT_SCHEMA;
  check("schema", name, schemaName);
  return name;
}

/** What a process tells the database of how a policy is to be ticked. */
export interface PolicySettings {
  halfLifeSeconds?: number | null | undefined;
  tickAdmissionBudget?: number | null | undefined;
  admissionBatchSize?: number | undefined;
  ahead?: number | null | undefined;
  aheadAuto?: boolean | undefined;
  enabled?: boolean | undefined;
}

/**
 * A policy's settings: its own, else the preset's. A process that has the policy but no preset knows only the policy's
 * own; the rest it leaves as the workers declared it.
 */
export function policySettings(policy: AnyPolicy, settings: Settings): PolicySettings {
  const own = policyDefinition(policy);
  const { defaults, fromPreset } = settings;
  if (!fromPreset) {
    return {
      halfLifeSeconds: own.halfLifeSeconds,
      tickAdmissionBudget: own.tickAdmissionBudget ?? undefined,
      admissionBatchSize: own.admissionBatchSize ?? undefined,
      enabled: own.enabled ? undefined : false,
    };
  }
  return {
    halfLifeSeconds: own.halfLifeSeconds === undefined ? defaults.halfLifeSeconds : own.halfLifeSeconds,
    tickAdmissionBudget: own.tickAdmissionBudget ?? defaults.tickAdmissionBudget,
    admissionBatchSize: own.admissionBatchSize ?? defaults.admissionBatchSize,
    ahead: defaults.ahead,
    aheadAuto: defaults.aheadAuto,
    enabled: own.enabled && settings.enabled,
  };
}

function duration(options: DispatchPolicyOptions, key: keyof typeof DURATIONS): number {
  return durationMs(optional(key, options[key], positiveDuration) ?? DURATIONS[key]);
}

function readDefaults(defaults: DispatchPolicyOptions["defaults"] = {}): Settings["defaults"] {
  checkOptions("defaults", defaults, ["halfLife", "tickAdmissionBudget", "admissionBatchSize", "ahead"]);
  const { halfLife, tickAdmissionBudget, admissionBatchSize, ahead } = defaults;
  if (tickAdmissionBudget != null) check("defaults.tickAdmissionBudget", tickAdmissionBudget, anInteger);
  if (ahead != null) check("defaults.ahead", ahead, wholeNumber(0, MOST_COUNTED));
  return {
    halfLifeSeconds:
      durationMs(optional("defaults.halfLife", halfLife, positiveDuration) ?? "1 minute") / 1000,
    tickAdmissionBudget: tickAdmissionBudget ?? null,
    admissionBatchSize: optional("defaults.admissionBatchSize", admissionBatchSize, anInteger) ?? 100,
    ahead: ahead ?? null,
    aheadAuto: ahead === undefined,
  };
}

function readLoop(loop: DispatchPolicyOptions["loop"], registry: Registry): Settings["loop"] {
  if (loop === false) return null;
  const all = registry.policies.map((policy) => policy.identifier);
  if (loop === undefined || loop === true) return { policies: all, shards: null };
  checkOptions("loop", loop, ["policies", "shards"]);
  for (const name of loop.policies ?? []) registry.named(name);
  for (const shard of loop.shards ?? []) check("loop.shards", shard, text(255));
  return { policies: loop.policies ?? all, shards: loop.shards ?? null };
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
