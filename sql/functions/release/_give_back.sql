-- Deletes the in-flight rows of these jobs, and gives their slots back. It feeds adaptive limiters, and leaves a freed row
-- if a partition waits.
--
-- A row stays for the next flush if the caller has not locked all of its limiters. The job was then admitted again under
-- other limiters. A row stays for another release if a later attempt has the slot, or the next admission in Graphile
-- Worker's row.
--
--   p_ending    jobs whose end Graphile Worker is recording: the ahead bound still counts them
--   left_ids    the jobs that stay
--   may_end     so many jobs of each worker pool may end before the next flush, because the only ones that wait are the
--     workers' next jobs, see _may_end; 0: it goes at once; null: nobody waits
--   is_recorded   the start of one of these jobs was recorded with its worker pool
--
-- It is longer than others, because its steps share the rows that the first ones deleted, and read better in their order.
create or replace function :DISPATCH_POLICY_SCHEMA._give_back(
  p_jobs :DISPATCH_POLICY_SCHEMA._private_finished_job[], p_job_ids bigint[], p_limiter_ids bigint[], p_ending bigint[],
  p_now timestamptz, out left_ids bigint[], out may_end int, out is_recorded boolean
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 jobs scanned the limiters 1,000 times
declare
  v_deleted :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs[];
  -- mostly there are none, and then no limiter needs a look-up
  v_overridden boolean := exists (select from :DISPATCH_POLICY_SCHEMA._private_overrides);
  v_recorded boolean;
  v_has_history boolean;
  v_reports boolean := exists (
      select from :DISPATCH_POLICY_SCHEMA._private_partitions q
      where q.probe_job_id is not null and q.probe_job_id = any(p_job_ids))
    or exists (
      select from :DISPATCH_POLICY_SCHEMA._private_policies p where p.breaker_failures is not null or p.fair_by_work);
begin
  select coalesce(bool_or(p.load_kept_for is not null), false), coalesce(bool_or(p.history_kept_for is not null), false)
  into v_recorded, v_has_history from :DISPATCH_POLICY_SCHEMA._private_policies p;
  with locked as materialized (
    select f.job_id, f.attempt, f.admission, f.policy_id, f.limiter_ids
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    where f.job_id = any(p_job_ids) order by f.job_id for update
  ),
  -- By hash, and once for each list: with "<@" each job of many partitions was compared with the limiters of all.
  unlocked as materialized (
    select g.limiter_ids from (select distinct h.limiter_ids from locked h) g
    where exists (
      select from unnest(g.limiter_ids) u (id) where (u.id in (select unnest(p_limiter_ids))) is not true)
  ),
  ends as materialized (
    select h.job_id, h.policy_id, f.ok, f.lag_ms, f.duration_ms, f.ordinality,
      :DISPATCH_POLICY_SCHEMA._is_end_of(f.admission, f.attempt, h.admission, h.attempt) as is_own
    from locked h join unnest(p_jobs) f on f.job = h.job_id
  ),
  -- ends of others than those that have the slots now: mostly there are none
  late_ends as materialized (
    select e.job_id, count(*) as ends from ends e where not e.is_own group by e.job_id
  ),
  late as materialized (
    select s.job_id from late_ends s join ends e on e.job_id = s.job_id
    group by s.job_id, s.ends having count(*) = s.ends
  ),
  deleted as (
    delete from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    -- Not by ctid: if somebody changed a row before it was locked, its new version is not visible to this statement.
    where f.job_id = any(array(
      select h.job_id from locked h
      where h.job_id not in (select o.job_id from late o) and h.limiter_ids not in (select u.limiter_ids from unlocked u)))
    returning f.*
  ),
  per_limiter as materialized (
    select u.id, sum(g.jobs)::int as jobs
    from (select g.limiter_ids, count(*) as jobs from deleted g group by g.limiter_ids) g
    cross join unnest(g.limiter_ids) u (id) group by u.id
  ),
  adaptive as materialized (
    select l.id, case when v_overridden then :DISPATCH_POLICY_SCHEMA._with_override(l, p_now) else l end as limiter
    from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(p_limiter_ids) and l.current_max is not null   -- adaptive ones
  ),
  adapted as materialized (
    select l.id, :DISPATCH_POLICY_SCHEMA._adaptive_fold(
      l.limiter, f.lag_ms, f.ok, g.admitted_at, (l.limiter).in_flight, p_now order by f.ordinality) as state
    from deleted g
    cross join unnest(g.limiter_ids) u (id)
    join adaptive l on l.id = u.id
    join ends f on f.job_id = g.job_id and f.ok is not null and f.is_own
      and (f.ok or g.cancelled_at is null)   -- an operator ended it: that says nothing of the load
    where exists (select from adaptive)
    group by l.id
  ),
  freed as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set
      in_flight = l.in_flight - n.jobs,
      released = l.released + n.jobs,
      ending = case when l.kind = 'ahead' then :DISPATCH_POLICY_SCHEMA._still_ending(l.ending) || array(
        select g.job_id from deleted g where g.policy_id = l.policy_id and g.job_id = any(p_ending)) else l.ending end,
      durations = case when l.kind = 'ahead'
        then :DISPATCH_POLICY_SCHEMA._durations_after(l.policy_id, l.durations, p_jobs) else l.durations end,
      current_max = coalesce((a.state).current_max, l.current_max),
      lag_ewma_ms = coalesce((a.state).lag_ewma_ms, l.lag_ewma_ms),
      decreased_at = coalesce((a.state).decreased_at, l.decreased_at)
    from per_limiter n left join adapted a on a.id = n.id
    where l.id = n.id and l.id = any(p_limiter_ids)
    returning l as limiter, l.id, l.policy_id, l.kind,
      -- a look at the index for each limiter: "exists" was hashed or joined with all that wait (33 ms at 100,000)
      (select true from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.blocked_on = l.id limit 1) is true as waited
  ),
  -- by partition, of policies that record their load
  ran as materialized (
    select g.policy_id, g.partition_id, count(*) as jobs, sum(:DISPATCH_POLICY_SCHEMA._seconds(e.duration_ms)) as seconds
    from deleted g
    join ends e on e.job_id = g.job_id and e.is_own and e.ok is not null and e.duration_ms is not null
    where v_recorded and g.policy_id in (
      select p.id from :DISPATCH_POLICY_SCHEMA._private_policies p where p.load_kept_for is not null)
    group by g.policy_id, g.partition_id
  ),
  appended as (
    insert into :DISPATCH_POLICY_SCHEMA._private_activity (policy_id, at, succeeded, failed, load, lags, runs)
    select e.policy_id, p_now, count(*) filter (where e.ok), count(*) filter (where not e.ok),
      array(select row(r.policy_id, r.partition_id, p_now, 0, 0, 0, r.jobs, r.seconds)
        :::DISPATCH_POLICY_SCHEMA._private_load_change from ran r where r.policy_id = e.policy_id),
      array_agg(:DISPATCH_POLICY_SCHEMA._seconds(e.lag_ms)), array_agg(:DISPATCH_POLICY_SCHEMA._seconds(e.duration_ms))
    from ends e where e.is_own and e.ok is not null and e.job_id in (select g.job_id from deleted g)
    group by e.policy_id
  ),
  announced as (
    insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
    select f.policy_id, f.id from freed f where f.waited
  ),
  notified as materialized (
    select p.id, :DISPATCH_POLICY_SCHEMA._notify(p.name) from :DISPATCH_POLICY_SCHEMA._private_policies p
    where p.id = any(array(select f.policy_id from freed f where f.waited))
  )
  select
    array(select h.job_id from locked h
      where h.limiter_ids in (select u.limiter_ids from unlocked u) and h.job_id not in (select o.job_id from late o)),
    (select min(case when f.kind = 'ahead' then :DISPATCH_POLICY_SCHEMA._may_end(f.limiter, p_now) else 0 end)
      from freed f join notified p on p.id = f.policy_id where f.waited),
    array(select g:::DISPATCH_POLICY_SCHEMA._private_in_flight_jobs from deleted g where v_reports or v_has_history),
    exists (select from deleted g where g.pool_id is not null)
  into left_ids, may_end, v_deleted, is_recorded;
  if v_has_history and v_deleted <> '{}' then
    perform :DISPATCH_POLICY_SCHEMA._record_ends(v_deleted, p_jobs, p_now);
  end if;
  if v_reports and :DISPATCH_POLICY_SCHEMA._report_ends(v_deleted, p_jobs) then
    may_end := 0;
  end if;
end
$$;
