import { createHash } from "node:crypto";
import type { GateKind, GateScope, OverrideRule, ResolvedValues } from "../gates/index.ts";
import type { Breaker, ContextFunction, Declaration, MaxPending } from "./declaration.ts";
import { DEFAULT_SHARD } from "./resolve.ts";

/**
 * A policy as JSON: what the database's policies table stores, and what decides whether a policy has changed. Where it
 * says null for a value, that value is a function of the context.
 */
export interface PolicyDefinition {
  name: string;
  tasks: string[];
  version: number;
  enabled: boolean;
  gates: {
    name: string;
    kind: GateKind;
    scope: GateScope;
    position: number;
    /** null where any value is a function of the context. */
    values: ResolvedValues | null;
    /** What `set_limit` takes, by the number's name. */
    overrides: Readonly<Record<string, OverrideRule>>;
  }[];
  /** null: fairness is disabled; undefined: the preset's default. */
  halfLifeSeconds: number | null | undefined;
  fairBy: "jobs" | "work";
  tickAdmissionBudget: number | null | undefined;
  admissionBatchSize: number | null | undefined;
  weight: number | null;
  cost: number | null;
  shard: string | null;
  partitionPaths: string[] | null;
  /** Whether SQL alone can stage a job: paths and constants only, no context, no schema, no scope that is a function. */
  resolvesInSql: boolean;
  job: { queueName?: string; priority?: number; maxAttempts?: number; flags?: string[] };
  retries: "restage" | "bypass";
  unmanaged: "enforce" | "run" | "reject";
  giveBackAttempt: boolean;
  /** null: none. */
  breaker: Breaker | null;
  /** null: no bound. */
  maxPending: MaxPending | null;
  whenBusy: "wait" | "skip";
  /** null: a running job keeps its slots until it ends. */
  slotTimeoutSeconds: number | null;
  /** A digest of the source of each function that what is stored depends on, by option. */
  functions: Record<string, string>;
}

export function describeDeclaration(declaration: Declaration): PolicyDefinition {
  const { name, version, enabled, retries, unmanaged, slotTimeoutSeconds } = declaration;
  const { halfLifeSeconds, fairBy, tickAdmissionBudget, admissionBatchSize } = declaration;
  const described = {
    gates: declaration.gates.map(({ name, kind, scope, values, overrides }, position) => ({
      name,
      kind,
      scope,
      position,
      values,
      overrides,
    })),
    weight: constant(declaration.weight),
    cost: constant(declaration.cost),
    shard: declaration.shardBy === undefined ? DEFAULT_SHARD : null,
    partitionPaths: typeof declaration.partitionBy === "function" ? null : [...declaration.partitionBy],
  };
  const job = structuredClone(declaration.job) as PolicyDefinition["job"];
  const resolvesInSql = needsNoJavaScript(declaration, described);
  const functions = digests(declaration);
  const limits = { halfLifeSeconds, fairBy, tickAdmissionBudget, admissionBatchSize };
  const tasks = [...declaration.tasks];
  const { giveBackAttempt, breaker = null, maxPending = null, whenBusy } = declaration;
  const jobs = {
    job,
    retries,
    unmanaged,
    slotTimeoutSeconds,
    giveBackAttempt,
    breaker,
    maxPending,
    whenBusy,
  };
  return { name, tasks, version, enabled, ...limits, ...described, resolvesInSql, ...jobs, functions };
}

/**
 * A text that is the same for definitions that say the same, whatever the order of their keys. It covers the functions'
 * source, not what they reach outside of themselves: raise `version` when that changes.
 */
export function definitionHash(definition: PolicyDefinition): string {
  return sha256(JSON.stringify(sorted(definition)));
}

function constant(value: number | ContextFunction): number | null {
  return typeof value === "number" ? value : null;
}

function needsNoJavaScript(
  { schema, context }: Declaration,
  described: Pick<PolicyDefinition, "gates" | "weight" | "cost" | "shard" | "partitionPaths">,
): boolean {
  const { gates, weight, cost, shard, partitionPaths } = described;
  return (
    schema === undefined &&
    context === undefined &&
    [weight, cost, shard, partitionPaths].every((value) => value !== null) &&
    gates.every((gate) => gate.values !== null && gate.scope !== "key")
  );
}

/** `backoff` is left out: it is asked by the process that ran the job, and nothing stored depends on it. */
function digests(declaration: Declaration): Record<string, string> {
  const { context, partitionBy, shardBy, weight, cost, gates } = declaration;
  const found: [string, unknown][] = Object.entries({ context, partitionBy, shardBy, weight, cost });
  for (const gate of gates) {
    for (const [option, run] of Object.entries(gate.functions))
      found.push([`gates.${gate.name}.${option}`, run]);
  }
  const functions = found.filter(([, value]) => typeof value === "function");
  return Object.fromEntries(functions.map(([option, run]) => [option, sha256(String(run))]));
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([key, inner]) => [key, sorted(inner)]));
}
