-- The slots that nobody will free, of these jobs in flight (null: of all). Graphile Worker does not have such a job any
-- more, or will not run it again. Or it keeps it for a later time, by its own back-off or because somebody rescheduled it.
--
-- The release parks a job that waits. Two kinds are not parked: a retry that bypasses the gates, and a job whose row the
-- next job of its job key has got. Admission, attempt and revision are returned as they are now, because the row may be
-- another's by the time of the release.
--
-- A job that Graphile Worker does not have any more may still run. An earlier attempt, whose pool counted as dead, may
-- have completed it late. The slot belongs to the later attempt as long as the pool lives that runs it.
--
-- A job that has just ended is released or parked by its own process within moments. The caller waits for that.
create or replace function _lost_slots(p_job_ids bigint[])
returns table (
  job_id bigint, admission bigint, attempt int, policy_id int, missing_since timestamptz, is_gone boolean, ok boolean, retry json
) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, coalesce(f.attempt, 0)::int, f.policy_id, f.missing_since, j.id is null,
    case when s.postponed and j.revision = f.revision and j.last_error is not null then false end,
    case when s.postponed and j.revision = f.revision and (p.retries = 'restage' or j.attempts = 0) then
      json_strip_nulls(to_json(row(j.attempts, j.revision, null, null, extract(epoch from j.run_at - clock_timestamp()),
        j.task_identifier, j.priority, j.max_attempts, null, null, null)::retry)) end
  from in_flight_jobs f
  join policies p on p.id = f.policy_id
  left join lateral (
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j on true
  cross join lateral (
    select j.locked_at is not null as running, j.attempts < j.max_attempts and j.run_at < 'infinity' as waits,
      j.locked_at is null and j.attempts < j.max_attempts
        and j.run_at > clock_timestamp() + interval '1 second'
        and j.run_at < 'infinity' as postponed
  ) s
  where (p_job_ids is null or f.job_id = any(p_job_ids)) and case when j.id is null then not exists (
      select from workers w
      where w.pool_id = f.pool_id and w.stale_at > clock_timestamp())
    else s.postponed or not (s.running or s.waits) end;
$$;
