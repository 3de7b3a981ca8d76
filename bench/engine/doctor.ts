// What the doctor's checks take, with 100,000 partitions, a million staged jobs and 10,000 in flight.
import { makeEngine } from "../../src/db/engine.ts";
import { THRESHOLDS } from "../../src/operate/doctor/finding.ts";
import { checksFor, examined } from "../../src/operate/doctor.ts";
import { median } from "../harness/statistics.ts";
import { makeCrowd, ROUNDS } from "./crowd.ts";
import { say } from "./timing.ts";

const world = await makeCrowd();
// 20,000 partitions are on hold, half of them by the breaker, and 5,000 jobs are quarantined
await world.query(
  "update dispatch_policy_internal.policies set breaker_failures = 1, breaker_within = 1, breaker_cooldown = 1",
);
await world.query(`update dispatch_policy_internal.partitions set blocked_on = null, stopped_by = 'ana',
    held_until = case when id::text < '8' then '-infinity' else now() + interval '1 hour' end,
    breaker_until = case when id::text < '8' then now() + interval '1 hour' else '-infinity' end
  where id in (select id from dispatch_policy_internal.partitions limit 20000)`);
await world.query(`update dispatch_policy_internal.staged_jobs set due = false, retry_at = now() + interval '1 hour', failures = 3
  where id in (select id from dispatch_policy_internal.staged_jobs limit 5000)`);
await world.settle();

const engine = makeEngine("dispatch_policy");
const context = {
  engine,
  withPgClient: (use: (client: never) => Promise<never>) => use(world.client as never),
};
const times = new Map<string, number[]>();
const found = new Set<string>();
for (let round = 0; round < ROUNDS; round++)
  await examined(context as never, THRESHOLDS, async (patient) => {
    for (const one of checksFor(patient.state)) {
      const started = performance.now();
      for (const { sentence } of await one(patient)) found.add(sentence);
      times.set(one.name, [...(times.get(one.name) ?? []), performance.now() - started]);
    }
  });
for (const sentence of found) console.log(`# ${sentence}`);
for (const [name, taken] of times)
  say(name, { median: `${median(taken).toFixed(1)} ms`, longest: `${Math.max(...taken).toFixed(1)} ms` });
await world.close();
