export { type FixedClock, fixedClock } from "./testing/fixed-clock.ts";
export { pglitePool } from "./testing/pglite-pool.ts";
export type { PGliteLike } from "./testing/pglite-session.ts";
export { admitUntilIdle, inFlightCounts, tickAt } from "./testing/ticks.ts";
