// How soon a job starts on a worker with nothing to do: from the call of addJob to the start of the job, governed beside
// plain, with default settings. No gate holds it back. The figure of a run is the median of its samples. Both workers are
// there all the time, in a process each, and are asked by turns.
import { SLOTS } from "../harness/children/worker.ts";
import type { Ratio } from "../harness/ratio.ts";
import { measureStarts } from "../harness/turning.ts";

export const latencyIdle: Ratio = {
  name: "latency_idle",
  what: "governed add to start ÷ plain, p50, on idle workers",
  unit: "ms",
  target: { atMost: 1.3 },
  settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, gates: 3 },
  size: "latencyIdle",
  measure: ({ latencyIdle: size }) => measureStarts(size, { gates: "none that binds", by: "add" }),
};
