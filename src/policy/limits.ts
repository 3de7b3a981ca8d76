import { callOption } from "../checks/options.ts";
import type { Gate, GateKind, GateScope, ResolvedValues } from "../gates/index.ts";
import { classOfWeight } from "./class.ts";
import { keyText } from "./key.ts";

/** One gate's limit for one scope key, as plain numbers. A row of the table `limiters` is made from it. */
export interface ResolvedLimit {
  readonly gate: string;
  readonly kind: GateKind;
  readonly scope: GateScope;
  /** The gate's place among the policy's gates, from 0. */
  readonly position: number;
  /** The scope key, for scope `"key"`. The keys of other scopes follow from partition and policy. */
  readonly key?: string;
  /** How many slots the job takes. Without it: one. */
  readonly cost?: number;
  /** Its numbers are those of the shared limit of this name. */
  readonly shared?: true;
  /** The gate's numbers, by the names that the database gives them. */
  readonly [number: string]: ResolvedValues[string] | undefined | string;
}

export type LimitsOf = (ctx: unknown) => readonly ResolvedLimit[];

/** Whether the jobs of a policy with these gates may wait in different lanes of a partition. */
export function haveLanes(gates: readonly Gate[]): boolean {
  return gates.some((gate) => gate.scopeKey !== null || isByCost(gate));
}

/** Whether its jobs say how many slots they take. */
export function isByCost({ kind, constants, functions }: Gate): boolean {
  return kind === "concurrency" && ("cost" in constants || "cost" in functions);
}

/**
 * Compiles gates to a function that gives a job's limits, in the gates' order. If no limit depends on the context, all
 * jobs of the policy share one list. That is why everything is frozen.
 */
export function compileLimits(gates: readonly Gate[]): LimitsOf {
  const builders = gates.map(compileLimit);
  const build: LimitsOf = (ctx) => Object.freeze(builders.map((limitOf) => limitOf(ctx)));
  if (gates.some((gate) => gate.values === null || gate.scopeKey !== null)) return build;
  const constant = build({});
  return () => constant;
}

/**
 * The lane of a job: its class, and the scope keys that its limits name, as text, each with its length, and how many slots it
 * takes: `_lane_of` in SQL. Jobs of a partition with different ones wait in lanes of their own, because each is charged to what it
 * names. The class is in the weight. Null: it is of class 0, and no gate has a key of its own, or a cost.
 */
export function laneOf(limits: readonly ResolvedLimit[], weight: number): string | null {
  const told = (text: string) => `${[...text].length}:${text}`;
  const keys = limits.flatMap(({ gate, key, cost }) =>
    key === undefined && cost === undefined
      ? []
      : told(gate) + (key === undefined ? "" : told(key)) + (cost === undefined ? "" : `x${cost}`),
  );
  const jobClass = classOfWeight(weight);
  const named = jobClass === 0 ? keys : [`class ${jobClass} `, ...keys];
  return named.length === 0 ? null : named.join("");
}

function compileLimit(gate: Gate, position: number): (ctx: unknown) => ResolvedLimit {
  const { name, kind, scope, scopeKey, values, resolve, shared } = gate;
  const head = { gate: name, kind, scope, position, ...(shared !== undefined && { shared: true as const }) };
  const what = `scope of gate "${name}"`;
  return (ctx) =>
    Object.freeze({
      ...head,
      ...(scopeKey !== null && { key: keyText(what, callOption(what, scopeKey, ctx)) }),
      ...(values ?? resolve(ctx)),
    });
}
