import { type AdaptiveConcurrencyOptions, adaptiveConcurrency } from "./adaptive-concurrency.ts";
import { type ConcurrencyOptions, concurrency } from "./concurrency.ts";
import type { Gate } from "./gate.ts";
import { type ThrottleOptions, throttle } from "./throttle.ts";

export type { Gate, GateCommon, GateKind, GateScope, ResolvedValues, Value } from "./gate.ts";
export type { AdaptiveConcurrencyOptions, ConcurrencyOptions, ThrottleOptions };
export { adaptiveConcurrency, concurrency, throttle };

/** The gates with a policy's context filled in, so that `ctx` needs no annotation. */
export interface GateFactories<C> {
  throttle(options: ThrottleOptions<C>): Gate<C>;
  concurrency(options: ConcurrencyOptions<C>): Gate<C>;
  adaptiveConcurrency(options: AdaptiveConcurrencyOptions<C>): Gate<C>;
}

/** Every gate there is. */
export const gateFactories: GateFactories<unknown> = Object.freeze({
  throttle,
  concurrency,
  adaptiveConcurrency,
});
