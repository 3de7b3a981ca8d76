export { type FixedClock, fixedClock } from "./testing/fixed-clock.ts";
export { admitUntilIdle, inFlightCounts, tickAt } from "./testing/ticks.ts";
