-- Applies what ended jobs say about how long they ran, if fairness is by work. An admission charges what the partition's
-- jobs took lately; an end settles the difference. The mean moves a fifth of the way with each end.
create or replace function _route_work(
  p_policy policies, p_arrivals arrivals[],
  p_now timestamptz
) returns void language sql volatile as $$
  with outcome as materialized (
    select a.partition_id, sum((a.outcome ->> 'work')::float8) as work, sum((a.outcome ->> 'ended')::int) as ended,
      sum((a.outcome ->> 'worked')::float8) as worked
    from unnest(p_arrivals) a where a.outcome ? 'work' group by a.partition_id
  ),
  settled as materialized (
    select q.id, greatest(0, o.work
        + _decayed(q.decayed_admits, q.decayed_at, (p_policy).half_life, p_now)) as decayed,
      case when o.ended > 0 then
        o.worked / o.ended + coalesce(q.mean_work - o.worked / o.ended, 0) * power(0.8, least(o.ended, 100))
      else q.mean_work end as mean_work
    from outcome o join partitions q on q.id = o.partition_id
  )
  update partitions q set
    decayed_admits = s.decayed,
    decayed_at = _throttle_filled_at(q.decayed_at, p_now),
    fair_key = _fair_key(p_policy, s.decayed, s.mean_work, q.weight, p_now),
    mean_work = s.mean_work
  from settled s where q.id = s.id;
$$;
