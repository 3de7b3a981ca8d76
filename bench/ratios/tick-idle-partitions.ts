// A tick (routing and admission) of 250 jobs over 50 partitions beside many others with nothing to admit, by turns with
// the same tick in a world without them. A quarter each are asleep, due in an hour, throttled for an hour, and blocked by
// a gate; they are written into the table, not brought about by jobs.
import { addIdlePartitions, worldWithBacklog } from "../engine/backlog.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import { timedTick } from "./tick-backlog.ts";

const PARTITIONS = 50;

export const tickIdlePartitions: Ratio = {
  name: "tick_idle_partitions",
  what: "a tick beside idle partitions ÷ without them",
  unit: "ms",
  target: { atMost: 1.2 },
  settings: { gates: 3, partitions: PARTITIONS, jobsPerTick: 250 },
  size: "tickIdlePartitions",
  async measure({ tickIdlePartitions: size }) {
    const beside = await worldWithBacklog(size.staged / PARTITIONS);
    await addIdlePartitions(beside, size.idlePartitions);
    const alone = await worldWithBacklog(size.staged / PARTITIONS);
    const pairs = await measurePairs(size, {
      subject: () => timedTick(beside),
      baseline: () => timedTick(alone),
    });
    await beside.close();
    await alone.close();
    return pairs;
  },
};
