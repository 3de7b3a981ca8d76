-- Finds in-flight jobs whose slots nobody will give back: Graphile Worker no longer has them, or it will not run them
-- again, or they wait there for a time to come (for its own back-off, or because somebody rescheduled them).
--
-- First they are marked, because a job that just finished is released, or parked, by its own process within moments.
-- Returned are how many were marked now, and those that were marked for longer than `p_grace`. The caller releases these.
-- One that waits is parked until its time, unless it is a retry and its policy's retries bypass the gates. Admission and
-- attempt are returned as they were looked at, because by the time of the release the row may be another's.
--
-- A job that is gone may still run: an earlier attempt, of a pool that was counted dead, may have completed it late. The
-- slot belongs to the later attempt for as long as the pool lives that runs it.
--
--   p_only_marked   only those that a verb has marked, in which case nothing is marked here
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_in_flight(p_grace interval, p_only_marked boolean default false)
returns table (job_id bigint, admission bigint, attempt int, ok boolean, retry json, marked int) language sql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
  with missing as materialized (
    select f.job_id, f.admission, coalesce(f.attempt, 0)::int as attempt, f.missing_since,
      case when s.put_off and j.last_error is not null then false end as ok,
      case when s.put_off and (p.retries = 'restage' or j.attempts = 0) then json_build_object(
        'attempt', j.attempts, 'task', j.task_identifier, 'after', extract(epoch from j.run_at - clock_timestamp()),
        'priority', j.priority, 'maxAttempts', j.max_attempts) end as retry
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
    left join lateral (
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j on true
    cross join lateral (
      select j.locked_at is not null as running, j.attempts < j.max_attempts and j.run_at < 'infinity' as waits,
        j.locked_at is null and j.attempts < j.max_attempts and j.revision = f.revision
          and j.run_at > clock_timestamp() + interval '1 second'
          and j.run_at < 'infinity' as put_off
    ) s
    where (not p_only_marked or f.missing_since = '-infinity') and case when j.id is null then not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_workers w
        where w.pool_id = f.pool_id and w.stale_at > clock_timestamp())
      else s.put_off or not (s.running or s.waits) end
  ),
  -- rows that others hold are skipped: many wait for their release, and to meet it halfway was a deadlock
  marked as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = clock_timestamp()
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where not p_only_marked and x.job_id in (select m.job_id from missing m where m.missing_since is null)
      for update skip locked))
    returning 1
  ),
  back as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = null
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where not p_only_marked and x.missing_since is not null and x.job_id not in (select m.job_id from missing m) for update skip locked))
    returning 1
  )
  select m.job_id, m.admission, m.attempt, m.ok, m.retry, (select count(*)::int from marked)
  from missing m where m.missing_since <= clock_timestamp() - p_grace
  union all
  select null, null, null, null, null, (select count(*)::int from marked) where exists (select from marked) or exists (select from back);
$$;
