import type { Ask } from "./children/turnaround.ts";
import { startChild } from "./children.ts";
import { BY_GATES, type Gates } from "./jobs.ts";
import { measurePairs, type Pairs, type Rounds } from "./pairs.ts";
import { openSide, type SideName } from "./sides.ts";
import { median } from "./statistics.ts";

interface Turns {
  readonly gates: Gates;
  /** What brings the next start in the governed worker. In the plain one each job is added. */
  readonly by: Ask["by"];
}

/** How soon jobs start, governed beside plain, in workers that are there all the time. A figure is a median of samples. */
export async function measureStarts(
  { samples, ...rounds }: Rounds & Pick<Ask, "samples">,
  { gates, by }: Turns,
): Promise<Pairs> {
  const governed = await startTurning("governed", gates);
  const plain = await startTurning("plain", gates);
  const pairs = await measurePairs(rounds, {
    subject: () => governed.p50({ samples, by }),
    baseline: () => plain.p50({ samples, by: "add" }),
  });
  await governed.stop();
  await plain.stop();
  return pairs;
}

/** A worker in a process of its own, with nothing to do but the samples it is asked for. */
async function startTurning(name: SideName, gates: Gates) {
  const side = await openSide(name, { policy: BY_GATES[gates] });
  const child = startChild("turnaround.ts", { side: name, url: side.url, tuned: false, gates });
  return {
    /** The median of its samples, in ms. */
    async p50(ask: Ask): Promise<number> {
      const { took } = await child.ask<Ask, { took: number[] }>(ask);
      return median(took);
    },
    async stop(): Promise<void> {
      await child.stop();
      await side.close();
    },
  };
}
