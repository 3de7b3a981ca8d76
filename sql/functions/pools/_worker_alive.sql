-- Records a worker pool's heartbeat. For the time `p_stale_after`, the pool is alive and its slots count for the ahead
-- bound. If the pool has more slots than before, the ahead bound rises, and this notifies the tick loops.
--
-- A heartbeat that comes later than half of that time restarts `unbroken_since`. The database may have been away, and
-- then other pools were silent as well.
create or replace function _worker_alive(
  p_pool_id text, p_slots int, p_tasks text[], p_host text, p_pid int, p_stale_after interval,
  p_clock_behind interval
) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with before as (
    select from workers w
    where w.pool_id = p_pool_id and w.stale_at > clock_timestamp() and w.slots >= p_slots and w.tasks @> p_tasks
  )
  select _notify(p.name) from policies p
  where p_slots > 0 and not exists (select from before) and p.id = any(array(
    select t.policy_id from policy_tasks t where t.task_identifier = any(p_tasks)));
  insert into workers as w (pool_id, slots, tasks, host, pid, stale_after, stale_at, clock_behind)
  values (p_pool_id, p_slots, p_tasks, p_host, p_pid, p_stale_after, clock_timestamp() + p_stale_after, p_clock_behind)
  on conflict (pool_id) do update set
    slots = excluded.slots, tasks = excluded.tasks, heartbeat_at = clock_timestamp(),
    stale_after = excluded.stale_after, stale_at = excluded.stale_at, buried_at = null, ended = false,
    clock_behind = excluded.clock_behind,
    unbroken_since = case when w.heartbeat_at + w.stale_after / 2 < clock_timestamp() then clock_timestamp()
      else w.unbroken_since end;
$$;
