// How soon a freed slot has its next job: from the return of a job's task function to the start of the next one's, under
// a concurrency gate of one, over one tenant or over ten together, in a worker with 23 more slots and nothing else to do.
// Beside it, on a plain worker as idle: from the call of addJob to the start of the job. The figure of a run is the median
// of its samples. Both workers are there all the time, in a process each, and are asked by turns.

import { SLOTS } from "../harness/children/worker.ts";
import type { Ratio } from "../harness/ratio.ts";
import { measureStarts } from "../harness/turning.ts";

const turnaround = (name: string, what: string, gates: "cap of one" | "shared cap of one"): Ratio => ({
  ...{ name, what: `${what} to next start ÷ plain add to start, p50`, unit: "ms", target: { atMost: 1.4 } },
  ...{ settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, max: 1 }, size: "slotTurnaround" },
  measure: ({ slotTurnaround: size }) => measureStarts(size, { gates, by: "end" }),
});

export const slotTurnaround = turnaround("slot_turnaround", "freed slot", "cap of one");
export const sharedTurnaround = turnaround(
  "slot_turnaround_shared",
  "freed slot of all tenants",
  "shared cap of one",
);
