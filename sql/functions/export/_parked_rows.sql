-- The rows of these parked jobs, which Graphile Worker has. None of another kind: a row that has its next job is no longer
-- parked. Those behind one _portion, by their staged ids, have neither payload nor error.
--
-- Graphile Worker has no public function that shows the payload of a job. So this function reads what reschedule_jobs
-- returns, and undoes it, as _stored_payload does. No other session ever sees a change.
create or replace function _parked_rows(p_job_ids bigint[])
returns :DISPATCH_POLICY_SCHEMA.db_job[] language plpgsql volatile
set lock_timeout = '900ms' as $$   -- less than PostgreSQL takes to look for a deadlock: this call gives way
declare
  v_rows :DISPATCH_POLICY_SCHEMA.db_job[] := '{}';
begin
  if p_job_ids = '{}' then
    return v_rows;
  end if;
  begin
    v_rows := array(
      select row(j.id, j.job_queue_id, j.task_id, case when j.is_read then j.payload end, j.priority, j.run_at, j.attempts,
        j.max_attempts, case when j.is_read then j.last_error end, j.created_at, j.updated_at, j.key, j.revision, j.locked_at,
        j.locked_by, j.flags, null):::DISPATCH_POLICY_SCHEMA.db_job
      from (
        select j.*, _portion(sum(octet_length(j.payload::text) + coalesce(octet_length(j.last_error), 0))
          over (order by s.id rows between unbounded preceding and 1 preceding)) = 0 as is_read
        from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(p_job_ids) j
        join staged_jobs s on s.parked_job_id = j.id
        where _is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags)
      ) j);
    raise exception using errcode = 'DPOUT';   -- the variable keeps its value
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_rows;
end
$$;
