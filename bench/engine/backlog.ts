import { jobsOf, keys, makeWorld, type World } from "./world.ts";

const PARTITIONS = 50;
const EACH_TICK = 5;
/** How many jobs of each partition one statement stages. */
const STEP = 20_000;

/** A world with so many jobs staged in each of 50 partitions; a tick admits five of each. */
export async function worldWithBacklog(each: number): Promise<World> {
  const world = await makeWorld({ batch: EACH_TICK });
  await world.stage(jobsOf(keys(PARTITIONS)));
  await world.routeAll();
  for (let left = each - 1; left > 0; left -= STEP) await world.stageMany(Math.min(left, STEP));
  // staged past the arrivals, which would have said that something is due
  await world.query(
    "update dispatch_policy_internal.partitions set head_priority = -1, head_run_at = '-infinity', head_id = 0, due_at = now()",
  );
  await world.settle();
  return world;
}

/** Stages what a tick takes, so that the backlog stays as it is. */
export function topUp(world: World): Promise<unknown> {
  return world.stage(jobsOf(keys(PARTITIONS), EACH_TICK));
}

/** Routes and admits 250 jobs. */
export async function tick(world: World): Promise<void> {
  await world.route();
  const pass = await world.admit(PARTITIONS);
  if (pass.admitted !== PARTITIONS * EACH_TICK) throw new Error(`a tick gave ${JSON.stringify(pass)}`);
}

/** Partitions with nothing to admit: a quarter each asleep, due in an hour, throttled for an hour, blocked by a gate. */
export async function addIdlePartitions(world: World, count: number): Promise<void> {
  await world.query(
    `insert into dispatch_policy_internal.partitions
       (id, policy_id, key, limiter_ids, due_at, denied_until, blocked_on, fair_key, looked_at, decayed_at)
     select md5(n::text)::uuid, p.id, n::text, array[l.id, p.ahead_limiter_id],
       case n % 4 when 0 then 'infinity' when 1 then now() + interval '1 hour' else now() end,
       case n % 4 when 2 then now() + interval '1 hour' when 3 then 'infinity' else '-infinity' end,
       case n % 4 when 3 then l.id end, mod(n * 0.6180339887, 1), now(), now()
     from generate_series(1, $1::int) n, dispatch_policy_internal.policies p, dispatch_policy_internal.limiters l
     where l.gate = 'all'`,
    [count],
  );
  await world.settle();
}
