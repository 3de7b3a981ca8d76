// A loud tenant has added many jobs at once; while they are worked off, a quiet one adds a job now and then. A quiet job
// that had not started when the run was cut off counts as having waited until then.

import { setTimeout as delay } from "node:timers/promises";
import { moment } from "../../harness/moment.ts";
import { quantile } from "../../harness/statistics.ts";
import type { Case, Figures } from "../case.ts";
import { jobsOf, openContest } from "../contest.ts";
import { overruns } from "../seen.ts";
import type { FloodSize } from "../sizes.ts";
import type { Limit, System } from "../system.ts";
import { CAP } from "./cap.ts";

const LOUD = "loud";
const QUIET = "quiet";
/** Jobs of the flood that run before the first quiet one is added. */
const UNDER_WAY = 10;

export const flood: Case = {
  name: "flood",
  what: "a quiet tenant's add to start beside a flood, no limit",
  limit: {},
  size: "flood",
  run: (system, { flood }) => run(system, {}, flood),
};

export const floodCapped: Case = {
  name: "flood_capped",
  what: "the same, at most 3 at once of each tenant",
  limit: { atOnce: CAP },
  size: "flood",
  run: (system, { flood }) => run(system, { atOnce: CAP }, flood),
};

async function run(system: System, limit: Limit, size: FloodSize): Promise<Figures> {
  const { jobs, workMs, samples, everyMs, withinMs } = size;
  const contest = await openContest(system, { keys: [LOUD, QUIET], limit, workMs });
  await contest.add(jobsOf([LOUD], jobs));
  await contest.startWorker();
  await contest.wait({ key: LOUD, ends: UNDER_WAY, withinMs });

  const added: number[] = [];
  for (let id = 0; id < samples; id++) {
    added.push(moment());
    await contest.add([{ key: QUIET, id }]);
    await delay(everyMs);
  }
  await contest.wait({ key: QUIET, ends: samples, withinMs });
  const seen = await contest.seen();
  const end = moment();
  await contest.close();

  const starts = new Map(seen.filter(({ key }) => key === QUIET).map(({ id, start }) => [id, start]));
  const took = added.map((at, id) => (starts.get(id) ?? end) - at);
  return {
    p50Ms: quantile(took, 0.5),
    p95Ms: quantile(took, 0.95),
    p99Ms: quantile(took, 0.99),
    unstarted: samples - starts.size,
    loudRun: seen.length - starts.size,
    mostAtOnce: overruns(seen, CAP).most,
  };
}
