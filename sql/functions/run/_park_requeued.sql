-- Parks a copy of a job that has run before, and stages a row that refers to it. The copy has the attempts and the error
-- that the job had. Without them a new row of Graphile Worker's would count from 0.
--
-- If a newer job of its key is staged, it has no key, as in _stage_requeued. If a newer one is being added to Graphile
-- Worker, this would overwrite it. Its row is no new one then, and the caller tries again.
create or replace function _park_requeued(
  p_policy policies, p_slot in_flight_jobs,
  p_job record, p_payload json, p_run_at timestamptz, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_key text := case when not exists (
    select from staged_jobs s where s.job_key = p_job.key) then p_job.key end;
  v_copy record;
begin
  select j.id, j.revision into v_copy from :GRAPHILE_WORKER_SCHEMA.add_jobs(array[row(
    p_job.task_identifier, p_payload, p_job.queue_name, 'infinity', p_job.max_attempts, v_key, 32767,
    _callers_flags(p_job.flags) || _ticket(
      (p_slot).staged_id, _admission_now(), (p_slot).partition_id, v_key,
      _trace_text(_traceparent_of(p_job.flags),
        coalesce(((p_slot).place).added_at, p_now), p_run_at, true))
  ):::GRAPHILE_WORKER_SCHEMA.job_spec]) j;
  if v_copy.revision > 0 then
    raise exception using errcode = 'DPOUT';
  end if;
  -- the one public way to write an error also uses the attempts up, so that comes first
  perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[v_copy.id], p_job.last_error)
  where p_job.last_error is not null;
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[v_copy.id], run_at => 'infinity', attempts => p_job.attempts - 1);
  insert into staged_jobs (
    id, partition_id, task_identifier, run_at, max_attempts, priority, cost, due, parked_job_id, parked_revision, sort_at)
  overriding system value
  values (
    (p_slot).staged_id, (p_slot).partition_id, p_job.task_identifier, p_run_at, p_job.max_attempts, p_job.priority,
    (p_slot).cost, true, v_copy.id, v_copy.revision,
    _sort_at_again((p_policy).job_order, (p_slot).sort_at));
end
$$;
