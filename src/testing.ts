export { type FixedClock, fixedClock } from "./testing/fixed-clock.ts";
export { pglitePool } from "./testing/pglite-pool.ts";
export type { PGliteLike } from "./testing/pglite-session.ts";
export { type RanJob, type RunDueJobsOptions, runDueJobs } from "./testing/run-due-jobs.ts";
export { admitUntilIdle, inFlightCounts, tickAt } from "./testing/ticks.ts";
export { type VirtualClock, virtualClock } from "./testing/virtual-clock.ts";
