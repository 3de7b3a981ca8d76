-- Creates the partitions and limiters that these arrivals name and that do not exist yet. Brings the other partitions up to
-- date: work lowers `due_at` and the head, and a later arrival or a higher version replaces context and limits. Returns the
-- limiters it has made, as gate and scope key.
create or replace function _route_partitions(
  p_policy policies, p_arrivals arrivals[],
  p_known known[], p_now timestamptz, out made_gates text[], out made_keys text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 arrivals were joined by nested loops
declare
  v_news news[] := _arrivals_by_partition(p_arrivals);
  v_made record;
begin
  v_made := _make_limiters((p_policy).id, v_news, p_known, p_now);
  made_gates := v_made.made_gates; made_keys := v_made.made_keys;
  perform _update_partitions(p_policy, v_news, p_known, v_made.limiters, p_now);
  if not exists (
    select from unnest(v_news) n where (n.partition_id in (select k.id from unnest(p_known) k)) is not true) then
    return;
  end if;
  insert into partitions (
    id, policy_id, key, shard, context, limits, weight, min_cost, limiter_ids, arrival_id, version, due_at,
    head_priority, head_run_at, head_id, paused_until, held_until, probing, stopped_by, stop_reason, decayed_at,
    looked_at, in_line_since, staged, fair_key)
  select n.partition_id, (p_policy).id, (n.newest).key, coalesce(n.shard, 'default'),
    coalesce((n.newest).context, '{}'), coalesce((n.newest).limits, '[]'), coalesce((n.newest).weight, 1),
    least(1, n.min_cost), coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id,
    case when (n.newest).limits is null then 0 else (n.newest).id end,
    -- one that a stop has made takes the first limits that come, also those of a job that moves there
    case when (n.newest).limits is null then -2147483648 else (n.newest).version end,
    n.due_at, n.head_priority, n.head_run_at, n.head_id,
    coalesce(n.paused_until, '-infinity'), coalesce(n.held_until, '-infinity'), n.held_until is not null,
    n.pause ->> 'by', n.pause ->> 'reason', p_now, p_now, p_now, n.jobs,
    _fair_key(p_policy, 0, null, coalesce((n.newest).weight, 1), p_now)
  from unnest(v_news) n
  left join unnest(v_made.limiters) i on i.partition_id = n.partition_id
  where (n.partition_id in (select k.id from unnest(p_known) k)) is not true;
end
$$;
