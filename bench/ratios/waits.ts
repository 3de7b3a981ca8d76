// How long a job waits from its add to its start under a steady load, governed beside plain, with default settings: calls of
// one and of three jobs by turns, of 100 tenants. No gate holds them back. The figure of a run is the median wait.
import { SLOTS } from "../harness/children/worker.ts";
import { openLoad } from "../harness/load.ts";
import { measurePairs } from "../harness/pairs.ts";
import type { Ratio } from "../harness/ratio.ts";
import type { SideName } from "../harness/sides.ts";
import type { Sizes } from "../harness/sizes.ts";

const JOBS_PER_CALL = [1, 3];

/** The load is started for each run, so that neither side waits beside the other's processes. */
async function wait(
  side: SideName,
  { seconds, tenants, rates }: Sizes["waits"],
  place: number,
): Promise<number> {
  const load = await openLoad(side);
  const run = (rate: number) => load.run({ rate, seconds, tenants, jobsPerCall: JOBS_PER_CALL });
  await run(rates[0] as number); // plans and caches
  await load.drained();
  const { p50 } = await run(rates[place] as number);
  await load.drained();
  await load.close();
  return p50;
}

const waits = (place: number, rate: number): Ratio => ({
  ...{
    name: `wait_${rate}`,
    what: `wait from add to start at ${rate} jobs a second, governed ÷ plain, p50`,
    unit: "ms",
  },
  ...{
    target: { atMost: 3 },
    settings: { concurrentJobs: SLOTS, maxPoolSize: SLOTS + 1, gates: 3 },
    size: "waits",
  },
  measure: ({ waits: size }) =>
    measurePairs(size, {
      subject: () => wait("governed", size, place),
      baseline: () => wait("plain", size, place),
    }),
});

export const WAITS = [100, 200, 400].map((rate, place) => waits(place, rate));
