// What an operator asks, with 100,000 partitions, a million staged jobs and 10,000 in flight: views, explain, status.
import { makeCrowd, ROUNDS } from "./crowd.ts";
import { medians, say, type Timing } from "./timing.ts";
import { jobsOf } from "./world.ts";

const world = await makeCrowd();
await world.settle();

await world.query(`select count(*) from graphile_worker.permanently_fail_jobs(array(
  select job_id from dispatch_policy_internal.in_flight_jobs order by job_id limit 1000), 'failed')`);
await world.query(
  "delete from dispatch_policy_internal.in_flight_jobs where job_id in (select id from graphile_worker.jobs where attempts >= max_attempts)",
);

const [{ id }] = (await world.query(
  "select s.id from dispatch_policy_internal.staged_jobs s order by s.id desc limit 1",
)) as [{ id: string }];
// a partition with more jobs than places are counted, and a loop, so that the last one's start is estimated
await world.stage(jobsOf(Array(20_000).fill("deep")));
await world.routeAll();
await world.query(
  `select dispatch_policy_internal._worker_alive('pool', 1, $1, 'host', 7, '1 hour', '0'),
     dispatch_policy_internal._lease('pool', $1, null, '1 hour', true)`,
  [[world.task]],
);
await world.query(`update dispatch_policy_internal.partitions
  set decayed_admits = 1000, admitted_total = 1000, decayed_at = clock_timestamp() where key = 'deep'`);
await world.settle();
const [{ deep }] = (await world.query(
  `select s.id as deep from dispatch_policy_internal.staged_jobs s
   join dispatch_policy_internal.partitions p on p.id = s.partition_id where p.key = 'deep'
   order by s.priority desc, s.run_at desc, s.id desc limit 1`,
)) as [{ deep: string }];
const [{ explained }] = (await world.query("select dispatch_policy.explain($1) as explained", [deep])) as [
  { explained: { estimate: object | null; no_estimate: string | null } },
];
if (!explained.estimate) throw new Error(`the last of 20,000 jobs has no estimate: ${explained.no_estimate}`);

const QUESTIONS: Record<string, readonly [text: string, values?: unknown[]]> = {
  "partitions, a page": ["select * from dispatch_policy.partitions order by partition limit 50"],
  "partitions, the most staged": ["select * from dispatch_policy.partitions order by staged desc limit 20"],
  "partitions by reason": ["select reason, count(*) from dispatch_policy.partitions group by reason"],
  policies: ["select * from dispatch_policy.policies"],
  "staged jobs, a page": ["select * from dispatch_policy.staged_jobs order by id limit 50"],
  "staged jobs of a partition": [
    "select * from dispatch_policy.staged_jobs where policy = $1 and partition = $2 limit 50",
    [world.task, "p3-77"],
  ],
  "failed jobs": ["select * from dispatch_policy.jobs where state = 'failed' order by id limit 50"],
  metrics: ["select * from dispatch_policy.metrics()"],
  "explain a job": ["select dispatch_policy.explain($1)", [id]],
  "explain the last of 20,000 jobs": ["select dispatch_policy.explain($1)", [deep]],
  "explain a partition": [
    "select dispatch_policy.explain(policy => $1, partition => $2)",
    [world.task, "p3-77"],
  ],
};
for (const [what, [text, values = []]] of Object.entries(QUESTIONS)) {
  const timings: Timing[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const timing = await world.timed(() => world.query(text, values));
    timings.push(timing);
    if (timing.ms > 5000) break;
  }
  say(what, { took: medians(timings) });
}
await world.close();
