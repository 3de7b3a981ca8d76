// More jobs of each key wait than its rate lets start in time: how many start in any second, and how much of the rate is
// used.
import type { Case } from "../case.ts";
import { jobsOf, keysOf, openContest } from "../contest.ts";
import { byKey, least, type Seen, windows } from "../seen.ts";

const PER_SECOND = 10;
const SPARE_SECONDS = 5;
const SECOND = 1000;
const MINUTE = 60_000;

export const rate: Case = {
  name: "rate",
  what: "at most 10 a second of each key",
  limit: { perSecond: PER_SECOND },
  size: "rate",
  async run(system, { rate: { keys: count, seconds } }) {
    const keys = keysOf(count);
    const contest = await openContest(system, { keys, limit: { perSecond: PER_SECOND }, workMs: 0 });
    const jobs = jobsOf(keys, PER_SECOND * (seconds + SPARE_SECONDS));
    await contest.add(jobs);
    await contest.startWorker();
    await contest.wait({ ends: jobs.length, withinMs: (seconds + 1) * SECOND });
    const seen = await contest.seen();
    await contest.close();

    const { most, above } = windows(seen, SECOND, PER_SECOND);
    return {
      mostInSecond: most,
      secondsAbove: above,
      shareOfRate: startedWithin(seen, seconds) / (PER_SECOND * seconds * count),
      ...(seconds * SECOND > MINUTE ? { mostInMinute: windows(seen, MINUTE, PER_SECOND * 60).most } : {}),
    };
  },
};

/** From each key's first start on. */
function startedWithin(seen: readonly Seen[], seconds: number): number {
  return byKey(seen).reduce((sum, own) => {
    const first = least(own.map(({ start }) => start));
    return sum + own.filter(({ start }) => start < first + seconds * SECOND).length;
  }, 0);
}
