import { type Metric, sampleWriter } from "./lines.ts";
import { rateNow, rest } from "./producer.ts";
import type { Seen } from "./seen.ts";
import type { Settings } from "./settings.ts";
import type { System } from "./system.ts";

export interface Sampled {
  readonly seen: Seen;
  readonly settings: Settings;
  depth(): Promise<number>;
  readonly signal: AbortSignal;
}

/** Writes a sample of each metric at each boundary of the clock, as all systems do, and a last one at the signal. */
export async function sample(system: System, { seen, settings, depth, signal }: Sampled): Promise<void> {
  const { instance, producer, sampleEveryS } = settings;
  const write = sampleWriter(system, instance);
  const periodMs = sampleEveryS * 1000;
  while (!signal.aborted) {
    await rest(periodMs - (Date.now() % periodMs), signal);
    const at = new Date();
    write(at, seen.take());
    if (instance === 0)
      write(at, [["producer_target_rate", rateNow(producer), 0], ...(await depthNow(depth))]);
  }
}

/** While the database is away, nobody knows the depth. */
async function depthNow(depth: () => Promise<number>): Promise<Metric[]> {
  try {
    return [["queue_depth", await depth(), 0]];
  } catch (error) {
    console.error(`# the depth is not known: ${(error as Error).message}`);
    return [];
  }
}
