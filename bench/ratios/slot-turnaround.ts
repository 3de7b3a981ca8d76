// How soon a freed slot has its next job: from the return of a job's task function to the start of the next one's, under
// a concurrency gate of one, in a worker with 23 more slots and nothing else to do. Beside it, on a plain worker as idle:
// from the call of addJob to the start of the job. The figure of a run is the median of its samples. Both workers are
// there all the time, in a process each, and are asked by turns.

import { SLOTS } from "../harness/children/worker.ts";
import { type Child, startChild } from "../harness/children.ts";
import { oneAtATime } from "../harness/jobs.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { openSide, type SideName } from "../harness/sides.ts";
import { median } from "../harness/statistics.ts";

export const slotTurnaround: Ratio = {
  name: "slot_turnaround",
  what: "freed slot to next start ÷ plain add to start, p50",
  unit: "ms",
  target: { atMost: 2 },
  settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, max: 1 },
  size: "slotTurnaround",
  async measure({ slotTurnaround: size }) {
    const governed = await startTurning("governed");
    const plain = await startTurning("plain");
    const p50 = async ({ child }: { child: Child }) => {
      const { took } = await child.ask<{ samples: number }, { took: number[] }>({ samples: size.samples });
      return median(took);
    };
    const pairs = await measurePairs(size, { subject: () => p50(governed), baseline: () => p50(plain) });
    await governed.stop();
    await plain.stop();
    return pairs;
  },
};

async function startTurning(name: SideName) {
  const side = await openSide(name, { policy: oneAtATime });
  const child = startChild("turnaround.ts", { side: name, url: side.url, tuned: false });
  return {
    child,
    async stop() {
      await child.stop();
      await side.close();
    },
  };
}
