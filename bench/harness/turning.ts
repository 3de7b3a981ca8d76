import type { Ask, Gates } from "./children/turnaround.ts";
import { startChild } from "./children.ts";
import { oneAtATime, openPolicy } from "./jobs.ts";
import { openSide, type SideName } from "./sides.ts";
import { median } from "./statistics.ts";

/** A worker in a process of its own, with nothing to do but the samples it is asked for. */
export async function startTurning(name: SideName, gates: Gates) {
  const side = await openSide(name, { policy: gates === "cap of one" ? oneAtATime : openPolicy });
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
