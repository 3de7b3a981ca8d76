-- Stages a job that has never run as it was staged before. If a newer job of its key is staged, it has no key, and runs
-- beside that one. So it is in Graphile Worker if a newer one comes after a worker has fetched it.
--
-- Graphile Worker may be taking the key off the original at this moment, for a job that is added past its policy. The
-- copy would pass for the newest of the key. Only a look after it is staged is sure, and the caller then tries again.
create or replace function _stage_requeued(
  p_policy policies, p_slot in_flight_jobs,
  p_job record, p_payload json, p_run_at timestamptz, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_place place := (p_slot).place;
  v_key text := p_job.key;
begin
  for try in 1 .. 2 loop
    insert into staged_jobs (
      id, partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, job_key, priority, flags,
      cost, due, created_at, known_job_id, known_revision, droppable, traceparent, expires_at, sort_at)
    overriding system value
    values (
      (p_slot).staged_id, (p_slot).partition_id, p_job.task_identifier, p_payload, p_job.queue_name, p_run_at,
      coalesce((v_place).run_at_given, false), p_job.max_attempts, v_key, p_job.priority,
      _callers_flags(p_job.flags), (p_slot).cost, true, coalesce((v_place).added_at, p_now),
      p_job.id, p_job.revision,
      _is_droppable((p_policy).when_full, (p_policy).max_pending_in_all),
      _traceparent_of(p_job.flags), (v_place).expires_at,
      _sort_at_again((p_policy).job_order, (p_slot).sort_at))
    on conflict (job_key) where job_key is not null do nothing;
    exit when found;
    v_key := null;
  end loop;
  if v_key is not null and not exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job.id and j.key = v_key
  ) then
    raise exception using errcode = 'DPOUT';
  end if;
end
$$;
