-- How a staged job has ended that left staging without an admission. Null: it goes on.
--
--   p_job_id, p_revision   the row in which it was parked; null: it was not parked, and a newer job of its key is there
--
-- The danger: somebody retried a parked job by hand. Its row leaves staging, but the job runs or waits in Graphile Worker. Or
-- it has just ended, and its release is under way: its row is gone, and the release knows how it ended. It counted as
-- replaced or as gone, and the callback came before its end. The cure: a job goes on while it is in flight, or while
-- Graphile Worker will run it.
create or replace function _outcome_of_staged(p_staged_id bigint, p_job_id bigint, p_revision int)
returns text language plpgsql stable as $$
declare
  v_row record;
begin
  if p_job_id is null then
    return 'replaced';
  end if;
  select j.* into v_row from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id;
  if found and not _is_row_of(p_revision, p_staged_id, v_row.revision, v_row.flags) then
    return 'replaced';
  elsif exists (
    select from in_flight_jobs f
    where f.job_id = p_job_id and (f.revision = p_revision or f.staged_id = p_staged_id)
  ) then
    return null;
  end if;
  return _outcome(
    null, false, v_row.attempts, v_row.max_attempts, v_row.locked_at is not null);
end
$$;
