-- How many jobs wait for each reason, and in how many partitions. It reads each partition once, and no job.
create or replace function _partition_metrics(p_now timestamptz, p_policy_id int)
returns table (name text, labels jsonb, value float8) language plpgsql stable as $$
begin
  return query
  -- The pause of a policy comes after the sums: it is one for all its partitions. With it PostgreSQL expects many groups, and
  -- sorts 100,000 partitions before it adds them up. That took 62 ms, and takes 37 now.
  with counted as materialized (
    select q.policy_id, _shown_reason(
        '-infinity', q.paused_until, q.held_until, q.breaker_until, q.denied_reason) as reason, q.due_at > p_now as is_later,
      count(*) as partitions, sum(q.staged) as jobs
    from partitions q
    where q.staged > 0 and (p_policy_id is null or q.policy_id = p_policy_id) group by 1, 2, 3
  ),
  waiting as materialized (
    select c.policy_id, r.reason, sum(c.partitions) as partitions, sum(c.jobs) as jobs
    from counted c join policies p on p.id = c.policy_id
    cross join lateral (
      select coalesce(_shown_reason(p.paused_until, '-infinity', '-infinity', '-infinity', c.reason),
        case when c.is_later then 'not_due' else 'none' end) as reason
    ) r
    group by 1, 2
  ),
  -- what the router has not counted yet, and what has no partition yet
  unrouted as materialized (
    select p.id as policy_id,
      (select coalesce(sum(a.jobs), 0) from arrivals a where a.policy = p.name)
      + (select count(*) from keyless_jobs k where k.policy = p.name) as jobs
    from policies p where p_policy_id is null or p.id = p_policy_id
  )
  select x.name, x.labels || jsonb_build_object('policy', p.name), x.value::float8
  from (
    select w.policy_id, 'staged_jobs', jsonb_build_object('reason', w.reason), w.jobs from waiting w
    union all
    select u.policy_id, 'staged_jobs', '{"reason": "unrouted"}', greatest(u.jobs, 0) from unrouted u
    union all
    select w.policy_id, 'waiting_partitions', jsonb_build_object('reason', w.reason), w.partitions from waiting w
  ) x (policy_id, name, labels, value)
  join policies p on p.id = x.policy_id;
end
$$;
