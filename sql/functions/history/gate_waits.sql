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
returns table (gate text, key text, jobs int, waited int, p95_seconds float8, longest_seconds float8)
language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp set jit = off as $$
  with it as materialized (
    select (p).id, (p).name, (p).definition from _policy(gate_waits.policy) p
  ),
  job as materialized (
    select h.staged_id, h.partition, h.waited
    from history h
    where h.policy_id = (select i.id from it i) and h.ended_at >= gate_waits.since and h.partition is not null
    order by h.ended_at desc limit 10000
  ),
  waited as materialized (
    select j.staged_id, w.name, sum(w.seconds)::float8 as seconds
    from job j cross join lateral _waits_by('gate', j.waited) w
    group by j.staged_id, w.name
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
        where q.id = _partition_id(i.name, k.partition) limit 1) end as key
    from (select distinct j.partition from job j) k
    cross join gate g
    cross join it i
  ),
  grouped as (
    select g.name, g.ordinality, c.key, count(*)::int as jobs, count(*) filter (where s.seconds > 0)::int as waited,
      percentile_cont(0.95) within group (order by s.seconds) as p95, max(s.seconds) as longest,
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
