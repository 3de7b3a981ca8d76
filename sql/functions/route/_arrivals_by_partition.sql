-- The content of these arrivals, one row for each partition.
create or replace function _arrivals_by_partition(
  p_arrivals arrivals[]
) returns news[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _route_partitions
begin
  return array(
    select row(
        w.partition_id, n.newest, w.due_at, w.min_cost, w.shard, f.head_priority, f.head_run_at, f.head_id,
        w.head_changed, w.later_at, w.pauses[1], w.paused_until, w.held_until,
        w.jobs)::news
    from (
      select a.partition_id, min(a.due_at) as due_at, min(a.min_cost) as min_cost,
        -- a stop has no shard
        (array_agg(a.shard order by a.id) filter (where a.shard is not null))[1] as shard,
        bool_or(a.head_changed) as head_changed, sum(a.jobs)::int as jobs,
        min(a.due_at) filter (where a.head_id = h.id) as later_at,
        -- the words of the stop that counts: the last pause, or the hold that ends last
        array_agg(a.pause order by a.pause -> 'held' <> 'null', (a.pause ->> 'held')::timestamptz desc, a.id desc) filter (where a.pause is not null) as pauses,
        max((a.pause ->> 'until')::timestamptz) as paused_until, max((a.pause ->> 'held')::timestamptz) as held_until
      from unnest(p_arrivals) a cross join _no_head() h group by a.partition_id
    ) w
    join (
      select distinct on (a.partition_id) a.partition_id, a as newest from unnest(p_arrivals) a
      order by a.partition_id, (a.limits is not null) desc, a.version desc, a.id desc
    ) n on n.partition_id = w.partition_id
    join (
      select distinct on (a.partition_id) a.partition_id, a.head_priority, a.head_run_at, a.head_id
      from unnest(p_arrivals) a order by a.partition_id, a.head_priority, a.head_run_at, a.head_id
    ) f on f.partition_id = w.partition_id);
end
$$;
