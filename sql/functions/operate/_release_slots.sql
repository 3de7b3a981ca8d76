-- Frees the slots of one in-flight job, by Graphile Worker's id or the staged one, and records it in the audit. If
-- admission and attempt are given, the slot is freed only if it still belongs to that admission and to no later
-- attempt. A job that starts in between is released as one that runs.
create or replace function _release_slots(
  p_job_id bigint, p_admission bigint, p_attempt int, p_reason text, p_by text
) returns table (matched int, changed int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_slot record;
begin
  matched := 0; changed := 0;
  for try in 1 .. 3 loop
    select f.job_id, f.admission, coalesce(f.attempt, 0) as attempt, p.name as policy, q.key as partition,
      case when j.locked_at is null and j.attempts < j.max_attempts and j.run_at < 'infinity'
        and j.revision = f.revision then json_build_object(
        'revision', j.revision, 'task', j.task_identifier, 'queueName', j.queue_name, 'priority', j.priority, 'maxAttempts', j.max_attempts,
        'after', extract(epoch from greatest(j.run_at, clock_timestamp()) - clock_timestamp())) end as again
    into v_slot
    from in_flight_jobs f
    join policies p on p.id = f.policy_id
    join partitions q on q.id = f.partition_id
    left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    where (f.job_id = p_job_id or f.staged_id = p_job_id)
      and coalesce(f.admission = p_admission and coalesce(f.attempt, 0) <= p_attempt, p_admission is null);
    exit when not found;
    matched := 1;
    perform _release(json_build_array(json_build_object(
      'job', v_slot.job_id, 'admission', v_slot.admission, 'attempt', v_slot.attempt, 'retry', v_slot.again)), null);
    changed := case when exists (
      select from in_flight_jobs f
      where f.job_id = v_slot.job_id and f.admission = v_slot.admission) then 0 else 1 end;
    exit when changed = 1;
  end loop;
  perform _audit('release_slots', v_slot.policy, v_slot.partition, null, null,
    jsonb_build_object('job_id', p_job_id), p_reason, p_by, matched, changed);
  return next;
end
$$;
