// More jobs of each key wait than its rate lets start in time: how many start in any second, and how much of the rate is
// used. Some jobs of another key run first: the first jobs of a new process start late, those after them do not, and both
// would fall into one second.
import type { Case } from "../case.ts";
import { jobsOf, keysOf, openContest } from "../contest.ts";
import { byKey, least, type Seen, type Windows, windows } from "../seen.ts";

const PER_SECOND = 10;
const WARM_UP = "warm-up";
const WARM_UP_JOBS = 3;
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
    const contest = await openContest(system, {
      keys: [...keys, WARM_UP],
      limit: { perSecond: PER_SECOND },
      workMs: 0,
    });
    await contest.add(jobsOf([WARM_UP], WARM_UP_JOBS));
    await contest.startWorker();
    await contest.wait({ ends: WARM_UP_JOBS, withinMs: 10 * SECOND });
    const jobs = jobsOf(keys, PER_SECOND * (seconds + SPARE_SECONDS));
    await contest.add(jobs);
    await contest.wait({ ends: jobs.length + WARM_UP_JOBS, withinMs: (seconds + 0.5) * SECOND });
    const seen = (await contest.seen()).filter(({ key }) => key !== WARM_UP);
    await contest.close();

    const over = (ms: number) =>
      windows(seen, { ms, allowed: (PER_SECOND * ms) / SECOND, withinMs: seconds * SECOND });
    const { most, above, error } = over(SECOND);
    return {
      mostInSecond: most,
      secondsAbove: above,
      errorInSecond: error,
      shareOfRate: startedWithin(seen, seconds) / (PER_SECOND * seconds * count),
      ...(seconds * SECOND > MINUTE ? minute(over(MINUTE)) : {}),
    };
  },
};

const minute = ({ most, error }: Windows) => ({ mostInMinute: most, errorInMinute: error });

/** From each key's first start on. */
function startedWithin(seen: readonly Seen[], seconds: number): number {
  return byKey(seen).reduce((sum, own) => {
    const first = least(own.map(({ start }) => start));
    return sum + own.filter(({ start }) => start < first + seconds * SECOND).length;
  }, 0);
}
