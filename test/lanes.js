// The long lane: what takes minutes, wants a quiet machine, a browser, or other programs. The everyday lane is the rest, and
// the same each time. `npm run test:long` runs both.
export const LONG = [
  "test/bench/{peers,public,quick}.test.ts",
  "test/chaos/chaos.test.ts",
  "test/crash/*.test.ts",
  "test/examples/*.test.ts",
  "test/failover/*.test.ts",
  "test/fuzz/fuzz.test.ts",
  "test/host/{demo,examples,four-hours,host-matrix,long-durations,orphans,outages,overload,package,pgbouncer,rollout}.test.ts",
  "test/host/{encodings,lifecycle,node-time,parsers,rename,rollback,sessions,shutdowns,starts,task-ids,tick-task}.test.ts",
  "test/metrics/monitoring.test.ts",
  "test/pages/{policies,start}.test.ts",
  "test/races/*.test.ts",
  "test/site/*.test.ts",
  "test/ui/{browser*,hosts}.test.ts",
];
