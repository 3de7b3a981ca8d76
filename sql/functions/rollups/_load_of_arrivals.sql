-- What these arrivals bring to each partition, by second. Jobs come when they are due. If nobody ticked for a minute, or
-- somebody gave them a time that has passed long ago, they come now.
create or replace function _load_of_arrivals(
  p_policy_id int, p_arrivals arrivals[], p_now timestamptz
) returns load_change[] language sql stable as $$
  select array(
    select row(p_policy_id, a.partition_id, s.at, sum(a.jobs), sum(a.jobs * a.min_cost), 0, 0, 0)
      ::load_change
    from unnest(p_arrivals) a
    cross join lateral (select date_trunc('second',
      case when a.due_at > p_now - interval '1 minute' then a.due_at else p_now end) as at) s
    where a.jobs > 0 and s.at < 'infinity'
    group by a.partition_id, s.at);
$$;
