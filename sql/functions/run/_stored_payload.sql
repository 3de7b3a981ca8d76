-- The payload of a running job as Graphile Worker stores it, with all its digits. JavaScript rounds some numbers.
--
-- Graphile Worker has no public function that shows the payload of a locked job. So this function unlocks the jobs of the
-- pool, reads the row that reschedule_jobs returns, and undoes both. No other session ever sees a job unlocked.
--
-- Null if the pool has the job no more. Raises lock_not_available if another session has one of these rows locked for a
-- while. The wait is shorter than PostgreSQL takes to look for a deadlock: this call gives way, and never the end of another
-- job.
create or replace function _stored_payload(p_job_id bigint, p_pool_id text)
returns json language plpgsql
set lock_timeout = '200ms' as $$
declare
  v_payload json;
begin
  begin
    perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(array[p_pool_id]);
    select j.payload into v_payload from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[p_job_id]) j;
    raise exception using errcode = 'DPOUT';   -- the variable keeps its value
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_payload;
end
$$;
