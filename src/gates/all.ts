// The list of all gates. A new gate is a file of its own, and its lines here. What is exported by name is public.
import {
  ADAPTIVE_CONCURRENCY,
  type AdaptiveConcurrencyOptions,
  adaptiveConcurrency,
} from "./adaptive-concurrency.ts";
import { CONCURRENCY, type ConcurrencyOptions, concurrency } from "./concurrency.ts";
import type { Gate as GateOfKind } from "./gate.ts";
import { THROTTLE, type ThrottleOptions, throttle } from "./throttle.ts";

export { adaptiveConcurrency, concurrency, throttle };

/** By the names of the functions that make them. */
const ANATOMIES = {
  throttle: THROTTLE,
  concurrency: CONCURRENCY,
  adaptiveConcurrency: ADAPTIVE_CONCURRENCY,
};
export default ANATOMIES;

type Gate<C> = GateOfKind<C, (typeof ANATOMIES)[keyof typeof ANATOMIES]["kind"]>;

/** The gates with a policy's context filled in, so that `ctx` needs no annotation. */
export interface GateFactories<C> {
  throttle(options: ThrottleOptions<C>): Gate<C>;
  concurrency(options: ConcurrencyOptions<C>): Gate<C>;
  adaptiveConcurrency(options: AdaptiveConcurrencyOptions<C>): Gate<C>;
}
