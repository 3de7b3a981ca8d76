// Another server takes over: what was acknowledged, the limits and the workers survive. `main.ts` is the form at length.
import test from "ava";
import { atLength } from "../helpers/at-length.ts";
import { COURSE, type Course, failover } from "./conductor.ts";
import { FAULTS, type FaultName, faultOf, UNHEARD_OF } from "./faults.ts";

/** Each takes up to a minute, and both processors. */
const MINUTES = 5;

for (const [title, course] of [
  ["synchronous: nothing is lost, and what was not in flight runs once", { mode: "sync" }],
  [
    "asynchronous: only what the standby had not received is lost, and no id comes twice",
    { mode: "async", lagMs: 1500 },
  ],
  ["asynchronous: runs that the next primary has never heard of hold their slots there", UNHEARD_OF],
  ["a host that is gone: workers go on at the next one", { mode: "sync", how: ["swallow"] }],
] as const satisfies readonly (readonly [string, Partial<Course>])[])
  test.serial(title, async (t) => {
    t.timeout(MINUTES * 60_000);
    const { verdict, file } = await failover({ ...COURSE, ...course });
    for (const [name, value] of verdict.table) t.log(`${name}: ${value}`);
    t.deepEqual(verdict.problems, [], file);
    t.true(verdict.rounds === 1 && verdict.acknowledged > 100 && verdict.runs > 100, "it ran");
  });

for (const fault of Object.keys(FAULTS) as FaultName[])
  atLength(`${fault}: that is seen`, async (t) => {
    t.timeout(MINUTES * 60_000);
    const { course, shows } = faultOf(fault);
    const { verdict, file } = await failover({ ...COURSE, ...course, fault });
    const seen = verdict.problems.filter((problem) => shows.test(problem));
    t.log(`${seen.length} of ${verdict.problems.length} problems: ${seen[0]}`);
    t.true(seen.length > 0, `${file}: ${JSON.stringify(verdict.table)}`);
  });
