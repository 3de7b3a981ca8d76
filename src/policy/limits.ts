import type { Gate, GateKind, GateScope, ResolvedValues } from "../gates/index.ts";
import { callOption } from "../gates/options.ts";
import { keyText } from "./key.ts";

/** One gate's limit for one scope key, as plain numbers: what a row of the limiters table is made from. */
export interface ResolvedLimit extends ResolvedValues {
  readonly gate: string;
  readonly kind: GateKind;
  readonly scope: GateScope;
  /** The gate's place among the policy's gates, from 0. */
  readonly position: number;
  /** The scope key; the partition's key for scope `"partition"`, the empty string for scope `"policy"`. */
  readonly key: string;
}

export type LimitsOf = (ctx: unknown, partition: string) => readonly ResolvedLimit[];

/** Bulk adds name few partitions often, or many once; this many lists of limits are kept for the former. */
const REMEMBERED_PARTITIONS = 1000;

/**
 * Compiles gates to a function that gives a job's limits, in the gates' order. Where nothing depends on the context, a
 * partition's list is built once and shared by its jobs; hence everything is frozen.
 */
export function compileLimits(gates: readonly Gate[]): LimitsOf {
  const builders = gates.map(compileLimit);
  const build: LimitsOf = (ctx, partition) =>
    Object.freeze(builders.map((limitOf) => limitOf(ctx, partition)));
  return gates.every((gate) => gate.values !== null && gate.scopeKey === null) ? remembering(build) : build;
}

function compileLimit(gate: Gate, position: number): (ctx: unknown, partition: string) => ResolvedLimit {
  const { name, kind, scope, scopeKey, values, resolve } = gate;
  const head = { gate: name, kind, scope, position };
  if (scope === "policy" && values !== null) {
    const shared = Object.freeze({ ...head, key: "", ...values });
    return () => shared;
  }
  const what = `scope of gate "${name}"`;
  const keyOf = (ctx: unknown, partition: string): string => {
    if (scopeKey !== null) return keyText(what, callOption(what, scopeKey, ctx));
    return scope === "partition" ? partition : "";
  };
  return (ctx, partition) =>
    Object.freeze({ ...head, key: keyOf(ctx, partition), ...(values ?? resolve(ctx)) });
}

function remembering(build: LimitsOf): LimitsOf {
  const remembered = new Map<string, readonly ResolvedLimit[]>();
  return (ctx, partition) => {
    const known = remembered.get(partition);
    if (known !== undefined) return known;
    if (remembered.size === REMEMBERED_PARTITIONS) remembered.clear();
    const limits = build(ctx, partition);
    remembered.set(partition, limits);
    return limits;
  };
}
