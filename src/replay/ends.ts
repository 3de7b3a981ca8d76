// The ends of replayed jobs: each frees its slots when its run has lasted long enough.
import type { Engine } from "../db/engine.ts";
import type { PolicyUtils } from "../index.ts";
import type { Durations } from "./durations.ts";
import type { PlannedPartition } from "./plan.ts";

interface End {
  readonly job: string;
  readonly at: number;
  readonly durationMs: number;
}

/** Of a partition that none of whose runs has ended yet: those of the others. */
function meanOf(partitions: readonly PlannedPartition[]): number {
  const known = partitions.flatMap(({ meanRun }) => (meanRun === null ? [] : [meanRun]));
  return known.length === 0 ? 0 : known.reduce((sum, mean) => sum + mean, 0) / known.length;
}

export function makeEnds(
  engine: Engine,
  { withPgClient }: Pick<PolicyUtils, "withPgClient">,
  durations: Durations | null,
  partitions: readonly PlannedPartition[],
) {
  const heap: End[] = []; // sorted, the last first: few jobs are in flight
  const mean = meanOf(partitions);
  return {
    add(job: string, partition: number, now: number): void {
      if (durations === null) return;
      const durationMs = Math.max(1, Math.round(durations(partitions[partition]?.meanRun ?? mean)));
      const end = { job, at: now + durationMs, durationMs };
      let place = heap.length;
      while (place > 0 && (heap[place - 1] as End).at < end.at) place--;
      heap.splice(place, 0, end);
    },
    nextAt: (): number | null => heap.at(-1)?.at ?? null,
    async release(now: number): Promise<void> {
      const ended: End[] = [];
      while (heap.length > 0 && (heap.at(-1) as End).at <= now) ended.push(heap.pop() as End);
      if (ended.length === 0) return;
      await withPgClient((client) =>
        engine.release(
          client,
          ended.map(({ job, durationMs }) => ({
            ...{ job, admission: null, ok: true, lagMs: 0, durationMs, attempt: null, retry: null },
          })),
        ),
      );
    },
  };
}
