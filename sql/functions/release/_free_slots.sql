-- Deletes the in-flight rows of these jobs, and frees their slots. It feeds adaptive limiters, and leaves a freed row
-- if a partition waits.
--
-- A row stays for the next flush if the caller has not locked all of its limiters. The job was then admitted again under
-- other limiters. A row stays for another release if a later attempt has the slot, or the next admission in Graphile
-- Worker's row.
--
--   p_ending    jobs whose end Graphile Worker is recording: the ahead bound still counts them
--   left_ids    the jobs that stay
--   may_end     how many jobs of each worker pool may end before the next flush, see _may_end. It is more than 0 only if
--     nobody waits but for the ahead bound. 0: the next flush goes at once. Null: no loop is notified
--   is_recorded   the start of one of these jobs was recorded with its worker pool
--   to_pass_on    limiters with a waiter, if p_passes_on: the caller passes them on, and nobody is told of them. Without the ahead
--     bound: those who wait for it go in numbers
--
-- What few policies need is in statements of its own, because each step of a statement costs time, also if it finds nothing.
--
-- It is longer than others, because the steps of its largest statement share the rows that the first ones deleted.
create or replace function _free_slots(
  p_jobs finished_job[], p_job_ids bigint[], p_limiter_ids bigint[], p_ending bigint[],
  p_now timestamptz, p_passes_on boolean,
  out left_ids bigint[], out may_end int, out is_recorded boolean, out to_pass_on bigint[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 jobs scanned the limiters 1,000 times
declare
  v_deleted in_flight_jobs[];
  v_waited limiters[];
  v_has_load boolean;
  v_has_history boolean;
  v_has_groups boolean;
  v_reports boolean;
  v_remembers boolean;
  v_adapts boolean;
begin
  select coalesce(bool_or(p.load_kept_for is not null), false), coalesce(bool_or(p.history_kept_for is not null), false),
    coalesce(bool_or(p.breaker_failures is not null or p.fair_by_work), false) or exists (
      select from partitions q where q.probe_job_id is not null and q.probe_job_id = any(p_job_ids)),
    coalesce(bool_or(p.unique_for is not null), false), exists (select from groups)
  into v_has_load, v_has_history, v_reports, v_remembers, v_has_groups from policies p;
  with locked as materialized (
    select f.job_id, f.attempt, f.admission, f.policy_id, f.limiter_ids
    from in_flight_jobs f
    where f.job_id = any(p_job_ids) order by f.job_id for update
  ),
  -- By hash, and once for each list: with "<@" each job of many partitions was compared with the limiters of all.
  unlocked as materialized (
    select g.limiter_ids from (select distinct h.limiter_ids from locked h) g
    where exists (
      select from unnest(g.limiter_ids) u (id) where (u.id in (select unnest(p_limiter_ids))) is not true)
  ),
  -- A job may have several ends. Those of others than it has the slot now free nothing.
  ends as materialized (
    select h.job_id, h.policy_id, f.ok, f.lag_ms, f.duration_ms, h.limiter_ids in (select u.limiter_ids from unlocked u) as stays
    from locked h join unnest(p_jobs) f on f.job = h.job_id
    where _is_end_of(f.admission, f.attempt, h.admission, h.attempt)
  ),
  deleted as (
    delete from in_flight_jobs f
    -- Not by ctid: if somebody changed a row before it was locked, its new version is not visible to this statement.
    where f.job_id = any(array(select e.job_id from ends e where not e.stays))
    returning f.*
  ),
  per_limiter as materialized (
    select u.id, sum(g.jobs)::int as jobs
    from (select g.limiter_ids, count(*) as jobs from deleted g group by g.limiter_ids) g
    cross join unnest(g.limiter_ids) u (id) group by u.id
  ),
  freed as (
    update limiters l set
      in_flight = l.in_flight - n.jobs,
      released = l.released + n.jobs,
      ending = case when l.kind = 'ahead' then _still_ending(l.ending) || array(
        select g.job_id from deleted g where g.policy_id = l.policy_id and g.job_id = any(p_ending)) else l.ending end,
      durations = case when l.kind = 'ahead'
        then _durations_after(l.policy_id, l.durations, p_jobs) else l.durations end
    from per_limiter n
    where l.id = n.id and l.id = any(p_limiter_ids)
    returning l as limiter, l.id, l.current_max is not null as adapts, p_passes_on and l.kind <> 'ahead' as passes_on,
      -- a look at the index for each limiter: "exists" was hashed or joined with all that wait (33 ms at 100,000)
      (select true from partitions q where q.blocked_on = l.id limit 1) is true as waited
  ),
  appended as (
    insert into activity (policy_id, at, succeeded, failed, lags, runs)
    select e.policy_id, p_now, count(*) filter (where e.ok), count(*) filter (where not e.ok),
      array_agg(_seconds(e.lag_ms)), array_agg(_seconds(e.duration_ms))
    from ends e where not e.stays and e.ok is not null
    group by e.policy_id
  )
  select
    array(select distinct e.job_id from ends e where e.stays),
    array(select f.limiter from freed f where f.waited),
    array(select g::in_flight_jobs from deleted g
      where exists (select from freed f where f.adapts) or v_has_load or v_reports or v_has_history or v_remembers or v_has_groups),
    exists (select from deleted g where g.pool_id is not null),
    array(select f.id from freed f where f.waited and f.passes_on), exists (select from freed f where f.adapts)
  into left_ids, v_waited, v_deleted, is_recorded, to_pass_on, v_adapts;
  if cardinality(v_waited) > cardinality(to_pass_on) then
    may_end := _announce_freed(v_waited, to_pass_on, p_now);
  end if;
  if v_remembers then
    perform _remember_ends(v_deleted, p_jobs, p_now);
  end if;
  if v_deleted = '{}' then
    return;
  end if;
  if v_adapts then
    perform _adapt_limiters(p_limiter_ids, v_deleted, p_jobs, p_now);
  end if;
  if v_has_load then
    perform _record_runs(v_deleted, p_jobs, p_now);
  end if;
  if v_has_history then
    perform _record_ends(v_deleted, p_jobs, p_now);
    perform _record_failures(v_deleted, p_jobs, p_now);
  end if;
  if v_has_groups then
    perform _end_released(v_deleted, p_jobs);
  end if;
  if v_reports and _report_ends(v_deleted, p_jobs) then
    may_end := 0;
  end if;
end
$$;
