// The list of all gates. A new gate is a file of its own, and its lines here.
import {
  ADAPTIVE_CONCURRENCY,
  type AdaptiveConcurrencyOptions,
  adaptiveConcurrency,
} from "./adaptive-concurrency.ts";
import { CONCURRENCY, type ConcurrencyOptions, concurrency } from "./concurrency.ts";
import type { Field, Gate as GateOfKind, Overrides } from "./gate.ts";
import { THROTTLE, type ThrottleOptions, throttle } from "./throttle.ts";

export type { GateCommon, GateScope, OverrideRule, ResolvedValues, Value } from "./gate.ts";
export type { AdaptiveConcurrencyOptions, ConcurrencyOptions, ThrottleOptions };
export { adaptiveConcurrency, concurrency, throttle };

const CAPS = [CONCURRENCY, ADAPTIVE_CONCURRENCY];
const ANATOMIES = [THROTTLE, ...CAPS];

/** The gates that count jobs in flight. */
export type CapKind = (typeof CAPS)[number]["kind"];
export type GateKind = (typeof ANATOMIES)[number]["kind"];

export const CAP_KINDS: readonly CapKind[] = CAPS.map(({ kind }) => kind);

/** One limit of a policy. Made by `throttle`, `concurrency` and `adaptiveConcurrency`. Frozen. */
export type Gate<C = unknown> = GateOfKind<C, GateKind>;

/** The gates with a policy's context filled in, so that `ctx` needs no annotation. */
export interface GateFactories<C> {
  throttle(options: ThrottleOptions<C>): Gate<C>;
  concurrency(options: ConcurrencyOptions<C>): Gate<C>;
  adaptiveConcurrency(options: AdaptiveConcurrencyOptions<C>): Gate<C>;
}

export const gateFactories: GateFactories<unknown> = Object.freeze({
  throttle,
  concurrency,
  adaptiveConcurrency,
});

/** The numbers of any gate that an operator may override for a time. */
export type GateOverrides = Overrides<(typeof ANATOMIES)[number]["fields"]>;

/** The options that an operator may override for a time, by name. */
export const overridableFields: Readonly<Record<string, Field>> = Object.fromEntries(
  ANATOMIES.flatMap(({ fields }) => Object.entries<Field>(fields)).filter(
    ([, { override }]) => override !== undefined,
  ),
);
