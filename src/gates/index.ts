// The gates, and what follows from the list of them.
import BY_NAME, * as all from "./all.ts";
import type { Field, Gate as GateOfKind, Overrides } from "./gate.ts";

export * from "./all.ts";
export type { GateScope, OverrideRule, ResolvedValues, Value } from "./gate.ts";

type Name = keyof typeof BY_NAME;
type Anatomy = (typeof BY_NAME)[Name];
const ANATOMIES: readonly Anatomy[] = Object.values(BY_NAME);

export type GateKind = Anatomy["kind"];

/** The gates that count jobs in flight: those without tokens. */
export type CapKind = Exclude<Anatomy, { fields: { rate: Field } }>["kind"];

export const CAP_KINDS = ANATOMIES.filter(({ fields }) => !("rate" in fields)).map(
  ({ kind }) => kind,
) as readonly CapKind[];

/** One limit of a policy. Made by `throttle`, `concurrency` and `adaptiveConcurrency`. Frozen. */
export type Gate<C = unknown> = GateOfKind<C, GateKind>;

export const gateFactories = Object.freeze(
  Object.fromEntries(Object.keys(BY_NAME).map((name) => [name, all[name as Name]])),
) as unknown as all.GateFactories<unknown>;

/** The numbers of any gate that an operator may override for a time. */
export type GateOverrides = Overrides<Anatomy["fields"]>;

/** The options that an operator may override for a time, by name. */
export const overridableFields: Readonly<Record<string, Field>> = Object.fromEntries(
  ANATOMIES.flatMap(({ fields }) => Object.entries<Field>(fields)).filter(
    ([, { override }]) => override !== undefined,
  ),
);
