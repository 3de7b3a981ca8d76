// A long snapshot elsewhere (a dump) keeps dead rows: stage, route and tick of one hot partition beside 100,000 of them.
import pg from "pg";
import { medians, say, type Timing } from "./timing.ts";
import { makeWorld } from "./world.ts";

const DEAD = Number(process.env.DEAD ?? 100_000);
const world = await makeWorld();
const hot = Array.from({ length: 20 }, () => ({ key: "hot" }));

async function probe(when: string): Promise<void> {
  const timings: Record<string, Timing[]> = { stage: [], route: [], tick: [] };
  for (let round = 0; round < 9; round++) {
    timings.stage!.push(await world.timed(() => world.stage(hot)));
    timings.route!.push(await world.timed(() => world.route()));
    const tick = await world.timed(() => world.admit());
    if (tick.result.admitted !== 20) throw new Error(JSON.stringify(tick.result));
    timings.tick!.push(tick);
  }
  say(when, Object.fromEntries(Object.entries(timings).map(([what, all]) => [what, medians(all)])));
}

await probe("warming up");
await world.settle();
await probe("clean");
const dump = new pg.Client({ connectionString: world.url });
await dump.connect();
await dump.query("begin isolation level repeatable read");
await dump.query("select count(*) from dispatch_policy_internal.staged_jobs");
await world.query(
  `insert into dispatch_policy_internal.staged_jobs (partition_id, task_identifier, run_at, due)
   select q.id, $1, now(), true from generate_series(1, $2::int) n, dispatch_policy_internal.partitions q`,
  [world.task, DEAD],
);
await world.query("delete from dispatch_policy_internal.staged_jobs");
await world.query(
  `insert into dispatch_policy_internal.arrivals (policy, partition_id, key)
   select $1, q.id, q.key from generate_series(1, $2::int) n, dispatch_policy_internal.partitions q`,
  [world.task, DEAD],
);
await world.query("delete from dispatch_policy_internal.arrivals");
await world.query("vacuum analyze dispatch_policy_internal.staged_jobs");
await world.query("vacuum analyze dispatch_policy_internal.arrivals");
await probe(`${DEAD} dead staged jobs and arrivals under a snapshot`);
await dump.query("commit");
await dump.end();
await world.settle();
await probe("the snapshot gone, vacuumed");
await world.close();
