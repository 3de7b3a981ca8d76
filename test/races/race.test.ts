// Many of everything at once, in processes of their own: four that tick, four that enqueue (two leave transactions
// open), two that run jobs, and one that knows nothing of the engine and watches. RACE_JOBS or RACE_SECONDS for more.
import test, { type ExecutionContext } from "ava";
import { atLength } from "../helpers/at-length.ts";
import { engine } from "../helpers/engine.ts";
import { seedOf } from "../helpers/random.ts";
import { table } from "../helpers/table.ts";
import { FAULTS, type FaultName, plant } from "./race/faults.ts";
import { race } from "./race/run.ts";
import { MOST_IN_ALL, MOST_OF_A_PARTITION, OPTIONS } from "./race/world.ts";

const SECONDS = Number(process.env.RACE_SECONDS ?? 0);
const JOBS = Number(process.env.RACE_JOBS ?? 1200);
const JOBS_UNTIL_A_FAULT_SHOWS = 600;
const MOST_ROUNDS = 12;

async function world(t: ExecutionContext) {
  t.timeout(SECONDS * 1000 + 300_000 + JOBS * 20);
  return engine(t, OPTIONS);
}

test.serial("processes race: no overrun, no deadlock, nothing lost, no counter left", async (t) => {
  const outcome = await race(await world(t), { jobs: JOBS, seconds: SECONDS, seed: seedOf(t) });
  t.log(JSON.stringify(outcome));
  t.deepEqual(outcome.problems, []);
  t.true(outcome.mostInAll > MOST_IN_ALL / 2, "it pressed on its limits");
  t.is(outcome.mostOfAPartition, MOST_OF_A_PARTITION);
});

test.serial("adds race with passes: what goes at once overruns nothing, and nothing is lost", async (t) => {
  const course = { jobs: JOBS / 2, seconds: SECONDS, seed: seedOf(t), alone: true };
  const outcome = await race(await world(t), course);
  t.log(JSON.stringify(outcome));
  t.deepEqual(outcome.problems, []);
  t.true(outcome.wentAtOnce > 0);
  t.true(outcome.wentAtOnce < outcome.jobs, "it pressed on its limits");
});

const shows: Record<FaultName, RegExp> = {
  "a limiter that is not locked": /overrun/,
  "a release that is lost": /stalled|left: counters/,
  "a wake-up written by the releaser, past locked partitions, in place of a freed row":
    /had to wake|stalled|deadlock/,
};

for (const name of Object.keys(FAULTS) as FaultName[]) {
  atLength(`the race finds ${name}`, async (t) => {
    const seed = seedOf(t);
    let problems: readonly string[] = [];
    let round = 0;
    // a race shows a race by chance: as many as it takes
    for (; round < MOST_ROUNDS && !shows[name].test(problems.join("; ")); round++) {
      const it = await world(t);
      await plant(it, name);
      const outcome = await race(it, { jobs: JOBS_UNTIL_A_FAULT_SHOWS, seconds: 0, seed: seed + round });
      t.true(outcome.jobs > 100, "it ran");
      problems = outcome.problems;
      // its traces: each test that leaves them fails
      for (const name of ["limiters", "partitions", "activity", "minutes"])
        await table(it.pool, name).remove();
      t.log(`round ${round + 1}: ${problems.join("; ") || "nothing shown"}`);
    }
    t.log(`after ${round} of at most ${MOST_ROUNDS} rounds`);
    t.regex(problems.join("; "), shows[name]);
  });
}
