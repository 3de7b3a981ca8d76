-- For pages, and nothing else calls it: how long jobs waited.

-- How long the jobs of a policy waited in staging for each of its gates, as its history says. It reads the jobs that ended since
-- a time, at most the last 10,000. No row: none has ended, or the policy keeps no history.
--
--   gate           name of the gate
--   key            what it counts over: the partition, or the scope key that the partition has now. Null: all keys
--   jobs           how many jobs have ended
--   waited         how many of these waited for the gate
--   p95_seconds    how long 95 of 100 jobs waited for it at most. Those that did not wait count as 0.
--   longest_seconds   how long the job waited that waited for longest.
--
-- Of each gate it returns the row of all keys, and those of the five keys that waited for longest.
--
--   select * from dispatch_policy.gate_waits('fetch_endpoint', now() - interval '1 hour');
create or replace function :DISPATCH_POLICY_SCHEMA.gate_waits(policy text, since timestamptz)
returns table (gate text, key text, jobs int, waited int, p95_seconds float8, longest_seconds float8) language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with it as materialized (
    select (p).id, (p).name, (p).definition from _policy(gate_waits.policy) p
  ),
  job as materialized (
    select h.staged_id, h.partition, h.waited from history h
    where h.policy_id = (select i.id from it i) and h.ended_at >= gate_waits.since and h.partition is not null
    order by h.ended_at desc limit 10000
  ),
  waited as materialized (
    -- not by _waited_by: called for each of 10,000 jobs, it took 150 ms
    select j.staged_id, k.name, sum(e.value::numeric)::float8 as seconds
    from job j
    cross join lateral jsonb_each_text(j.waited) e
    cross join lateral (select substr(e.key, strpos(e.key, ':') + 1) as name where strpos(e.key, ':') > 0) k
    group by j.staged_id, k.name
  ),
  gate as materialized (
    select g.value ->> 'name' as name, g.value ->> 'scope' as scope, g.ordinality
    from it i cross join jsonb_array_elements(i.definition -> 'gates') with ordinality g
  ),
  -- of a key: that of the partition's limiter
  counted as materialized (
    select g.name, g.scope, k.partition,
      case g.scope when 'partition' then k.partition when 'key' then (   -- of these alone, by index: a join reads all
        select l.scope_key from partitions q
        join limiters l on l.id = any(q.limiter_ids) and l.gate = g.name
        where q.id = any(array(select unnest(_lanes(i.name, k.partition)))) limit 1) end as key
    from (select distinct j.partition from job j) k
    cross join gate g
    cross join it i
  ),
  grouped as (
    select g.name, g.ordinality, c.key, count(*)::int as jobs, count(*) filter (where s.seconds > 0)::int as waited,
      percentile_disc(0.95) within group (order by s.seconds) as p95, max(s.seconds) as longest,
      grouping(c.key) = 1 as is_all
    from job j
    join counted c on c.partition = j.partition
    join gate g on g.name = c.name
    left join waited w on w.staged_id = j.staged_id and w.name = c.name
    cross join lateral (select coalesce(w.seconds, 0) as seconds) s
    group by grouping sets ((g.name, g.ordinality, c.key), (g.name, g.ordinality))
  ),
  placed as (
    select r.*, row_number() over (partition by r.name, r.is_all
      order by r.p95 desc, r.waited::float8 / r.jobs desc, r.longest desc, r.key) as place
    from grouped r where r.is_all or (r.key is not null and r.waited > 0)
  )
  select r.name, r.key, r.jobs, r.waited, r.p95, r.longest
  from placed r where r.place <= 5 order by r.ordinality, r.is_all desc, r.place;
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.gate_waits from public;

-- How long jobs waited from when they were due to their first admission, by partition and over time, as the policy's history
-- says. It reads the jobs that ended since a time, at most the last 10,000 of the policy, without those that were never
-- admitted.
--
--   partition        its key. Null: all partitions. That row is missing only if the policy keeps no history.
--   jobs             how many of the jobs ended.
--   p95_seconds      how long 95 of 100 of them waited at most. Null: none ended.
--   longest_seconds  how long the job waited that waited for longest.
--   steps            the same as p95_seconds, of the jobs that ended in each step since the time, as in minutes_in_steps.
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
    select h.partition, h.ended_at, h.due_at, h.admitted_at from history h
    where h.policy_id = (select i.id from it i) and h.ended_at >= (select i.since from it i)
    order by h.ended_at desc limit 10000
  ),
  job as materialized (
    select e.partition, date_bin(partition_waits.step, e.ended_at, '2000-01-01Z') as at,
      greatest(extract(epoch from e.admitted_at - e.due_at)::float8, 0) as seconds
    from ended e where e.partition is not null and e.due_at is not null and e.admitted_at is not null
  ),
  summed as (
    select j.partition, grouping(j.partition) = 1 as is_all, count(*)::int as jobs,
      percentile_disc(0.95) within group (order by j.seconds) as p95, max(j.seconds) as longest
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
    select c.is_all, c.partition, j.at, percentile_disc(0.95) within group (order by j.seconds) as p95
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
