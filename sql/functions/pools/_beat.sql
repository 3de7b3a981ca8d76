-- A pool's heartbeat and its leases in one statement. `busy`: a sweep has something to do. Jobs are staged or in flight,
-- activity waits to be folded, or a pool is silent or has ended lately.
create or replace function _beat(
  p_pool_id text, p_slots int, p_tasks text[], p_host text, p_pid int, p_stale_after interval,
  p_policies text[], p_shards text[], p_ttl interval, p_bid boolean, p_clock_behind interval default '0'
) returns table (
  policy text, shard text, leads boolean, expires_in_ms float8, next_in_ms float8, waiting boolean, busy boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
begin
  perform _worker_alive(p_pool_id, p_slots, p_tasks, p_host, p_pid, p_stale_after,
    p_clock_behind);
  return query
  select l.*, exists (select from in_flight_jobs)
    or exists (select from staged_jobs)
    or exists (select from activity)
    or exists (
      select from workers w
      where w.stale_at < clock_timestamp() and (w.ended or w.buried_at is null))
  from _lease(p_pool_id, p_policies, p_shards, p_ttl, p_bid) l;
end
$$;
