import { createHash } from "node:crypto";
import type { GateKind, GateScope, OverrideRule, ResolvedValues } from "../gates/index.ts";
import type { Ahead } from "./ahead.ts";
import type { Debounce } from "./debounce.ts";
import type { Breaker, ContextFunction, Declaration, Kept, MaxPending, Order } from "./declaration.ts";
import { isByCost } from "./limits.ts";
import { DEFAULT_SHARD } from "./resolve.ts";

/**
 * A policy as JSON. The database stores it in the table `policies`, and compares it to find out whether a policy has
 * changed. A value that is null is a function of the context, unless its comment says otherwise.
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
    /** null: at least one value is a function of the context. */
    values: ResolvedValues | null;
    /** Those of the values that are no functions. */
    constants: ResolvedValues;
    /** The numbers that `set_limit` accepts, by name. */
    overrides: Readonly<Record<string, OverrideRule>>;
    /** Its numbers are those of the shared limit of its name. A shared limit has no tasks, and this one gate. */
    shared?: true;
  }[];
  /** null: fairness is disabled; undefined: the preset's default. */
  halfLifeSeconds: number | null | undefined;
  fairBy: "jobs" | "work";
  tickAdmissionBudget: number | null | undefined;
  admissionBatchSize: number | null | undefined;
  ahead: Ahead | undefined;
  /** null also if jobs have classes. */
  weight: number | null;
  /** Of each class with a share of what is admitted, its share. null: none has one. */
  classShare: Readonly<Record<string, number>> | null;
  cost: number | null;
  shard: string | null;
  partitionPaths: string[] | null;
  /** Whether SQL alone can stage a job: there are only paths and constants, no context, no schema, no scope function. */
  resolvesInSql: boolean;
  job: { queueName?: string; priority?: number; maxAttempts?: number; flags?: string[] };
  retries: "restage" | "bypass";
  unmanaged: "enforce" | "run" | "reject";
  refundAttempt: boolean;
  /** null: none. */
  breaker: Breaker | null;
  /** null: no bound. */
  maxPending: MaxPending | null;
  whenBusy: "wait" | "skip" | "delay";
  /** null: `whenBusy` is not `"delay"`. */
  busyDelaySeconds: number | null;
  /** null: the usual order. */
  order: Order | null;
  /** null: its jobs do not expire. */
  expiresAfterSeconds: number | null;
  /** null: an add of a job key postpones no job, unless it says so itself. */
  debounce: Debounce | null;
  /** null: a run is not cancelled by a newer job of its key. */
  cancelsAfterSeconds: number | null;
  /** null: a job key is not remembered after its job. */
  uniqueForSeconds: number | null;
  /** null: it is not recorded. */
  load: Kept | null;
  /** null: it has none. */
  history: Kept | null;
  /** null: a running job keeps its slots until it ends. */
  slotTimeoutSeconds: number | null;
  /** Whether a gate has `perWorker`. Then each start asks the database. */
  perWorker: boolean;
  /** A gate has a `cost`: jobs take several slots. */
  byCost?: true;
  /** A digest of the source of each function that stored values depend on, by option. */
  functions: Record<string, string>;
}

export function describeDeclaration(declaration: Declaration): PolicyDefinition {
  const { name, version, enabled, retries, unmanaged, slotTimeoutSeconds } = declaration;
  const { halfLifeSeconds, fairBy, tickAdmissionBudget, admissionBatchSize, ahead } = declaration;
  const described = {
    gates: declaration.gates.map(({ name, kind, scope, values, constants, overrides, shared }, position) => ({
      name,
      kind,
      scope,
      position,
      values,
      constants,
      overrides,
      ...((shared !== undefined || declaration.tasks.length === 0) && { shared: true as const }),
    })),
    perWorker: declaration.gates.some(({ constants }) => constants.per_worker === true),
    ...(declaration.gates.some(isByCost) && { byCost: true as const }),
    weight: declaration.class === null ? constant(declaration.weight) : null,
    classShare: declaration.classShare,
    cost: constant(declaration.cost),
    shard: declaration.shardBy === undefined ? DEFAULT_SHARD : null,
    partitionPaths: typeof declaration.partitionBy === "function" ? null : [...declaration.partitionBy],
  };
  const job = structuredClone(declaration.job) as PolicyDefinition["job"];
  const resolvesInSql = needsNoJavaScript(declaration, described);
  const functions = digests(declaration);
  const limits = { halfLifeSeconds, fairBy, tickAdmissionBudget, admissionBatchSize, ahead };
  const tasks = [...declaration.tasks];
  const { refundAttempt, breaker = null, maxPending = null, whenBusy, busyDelaySeconds, order } = declaration;
  const { expiresAfterSeconds, debounce = null, cancelsAfterSeconds } = declaration;
  const { uniqueForSeconds, load = null, history = null } = declaration;
  const jobs = {
    job,
    retries,
    unmanaged,
    slotTimeoutSeconds,
    refundAttempt,
    breaker,
    maxPending,
    whenBusy,
    busyDelaySeconds,
    order,
    expiresAfterSeconds,
    debounce,
    cancelsAfterSeconds,
    uniqueForSeconds,
    load,
    history,
  };
  return { name, tasks, version, enabled, ...limits, ...described, resolvesInSql, ...jobs, functions };
}

/**
 * A text that is the same for equal definitions, whatever the order of their keys. It covers the source of functions, but
 * not the values that they read from outside: raise `version` when those change.
 */
export function definitionHash(definition: PolicyDefinition): string {
  return sha256(JSON.stringify(sorted(definition)));
}

function constant(value: number | ContextFunction): number | null {
  return typeof value === "number" ? value : null;
}

function needsNoJavaScript(
  { schema, context, deadline }: Declaration,
  described: Pick<PolicyDefinition, "gates" | "weight" | "cost" | "shard" | "partitionPaths" | "byCost">,
): boolean {
  const { gates, weight, cost, shard, partitionPaths, byCost } = described;
  return (
    schema === undefined &&
    context === undefined &&
    deadline === null &&
    !byCost &&
    [weight, cost, shard, partitionPaths].every((value) => value !== null) &&
    gates.every((gate) => gate.values !== null && gate.scope !== "key")
  );
}

/** Without `backoff`: the process that ran the job calls it, and no stored value depends on it. */
function digests(declaration: Declaration): Record<string, string> {
  const { context, partitionBy, shardBy, weight, class: ofContext, cost, deadline, gates } = declaration;
  const found: [string, unknown][] = Object.entries({
    context,
    partitionBy,
    shardBy,
    weight,
    class: ofContext,
    cost,
    deadline,
  });
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
