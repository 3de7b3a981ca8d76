-- How long jobs waited from when they were due to their first admission, by partition and over time. The policy's history
-- says so. It reads the jobs that ended since a time, at most the last 10,000 of the policy. It leaves out those that
-- were never admitted.
--
--   partition        its key. Null: all partitions. That row is missing only if the policy keeps no history.
--   jobs             how many of the jobs ended.
--   p95_seconds      how long 95 of 100 of them waited at most. Null: none ended.
--   longest_seconds  how long the job waited that waited for longest.
--   steps            the same as p95_seconds, of the jobs that ended in each step since the time. Steps begin as those of
--                    minutes_in_steps.
--
-- Beside the row of all it returns the row of the partition that was asked for, or else the ten worst.
--
--   select * from dispatch_policy.partition_waits('fetch_endpoint', now() - interval '1 hour', '1 minute');
create or replace function :DISPATCH_POLICY_SCHEMA.partition_waits(
  policy text, since timestamptz, step interval, partition text default null
) returns table (partition text, jobs int, p95_seconds float8, longest_seconds float8, steps float8[])
language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with it as materialized (
    select (p).id, date_bin(partition_waits.step, partition_waits.since, '2000-01-01Z') as since
    from _policy(partition_waits.policy) p where (p).history_kept_for is not null
  ),
  ended as materialized (
    select h.partition, h.ended_at, h.due_at, h.admitted_at
    from history h
    where h.policy_id = (select i.id from it i) and h.ended_at >= (select i.since from it i)
    order by h.ended_at desc limit 10000
  ),
  job as materialized (
    select e.partition, date_bin(partition_waits.step, e.ended_at, '2000-01-01Z') as at,
      greatest(extract(epoch from e.admitted_at - e.due_at)::float8, 0) as seconds
    from ended e
    where e.partition is not null and e.due_at is not null and e.admitted_at is not null
  ),
  summed as (
    select j.partition, grouping(j.partition) = 1 as is_all, count(*)::int as jobs,
      percentile_cont(0.95) within group (order by j.seconds) as p95, max(j.seconds) as longest
    from job j group by grouping sets ((j.partition), ())
  ),
  chosen as materialized (
    select s.* from summed s where s.is_all
    union all
    (select s.* from summed s
     where not s.is_all and (partition_waits.partition is null or s.partition = partition_waits.partition)
     order by s.p95 desc, s.longest desc, s.partition limit 10)
  ),
  stepped as materialized (
    select c.is_all, c.partition, j.at, percentile_cont(0.95) within group (order by j.seconds) as p95
    from chosen c join job j on c.is_all or j.partition = c.partition
    group by c.is_all, c.partition, j.at
  )
  select c.partition, c.jobs, c.p95, c.longest, array(
      select t.p95 from generate_series(i.since, statement_timestamp(), partition_waits.step) g (at)
      left join stepped t on (t.is_all, t.at) = (c.is_all, g.at) and t.partition is not distinct from c.partition
      order by g.at)
  from it i cross join chosen c
  order by c.is_all desc, c.p95 desc, c.longest desc, c.partition;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.partition_waits from public;
