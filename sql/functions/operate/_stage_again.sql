-- Stages a job again that somebody runs again, and that has no slot: it failed for good, or freed its slot. It was
-- admitted once, and would start past its limits. So it is parked, and staged like any retry. If only JavaScript can work
-- out the partition, the job waits for the next tick of a process that has the policy.
--
-- A job that waits in Graphile Worker for a later time frees its slot with the next sweep.
create or replace function _stage_again(p_job :DISPATCH_POLICY_SCHEMA.db_job)
returns void language plpgsql as $$
declare
  v_job record;
  v_ids regclass := pg_get_serial_sequence('staged_jobs', 'id');
begin
  if (p_job).locked_at is null and (p_job).run_at > clock_timestamp() + interval '1 second' then
    perform _leave_to_sweep(array[(p_job).id]);
  end if;
  select case when _is_ours(g.flags, g.created_at, g.key)
      then _staged_id_of((p_job).flags) end as staged_id, g.task_identifier, g.queue_name,
    p.name as policy, p.generation, p.definition, (p.definition ->> 'resolvesInSql')::boolean as resolves
  into v_job
  from :GRAPHILE_WORKER_SCHEMA.jobs g
  join policy_tasks t on t.task_identifier = g.task_identifier
  join policies p on p.id = t.policy_id and p.enabled
    and (p.retries = 'restage' or (p_job).attempts = 0)   -- other retries go past the gates
  where g.id = (p_job).id
    and (p_job).locked_at is null and (p_job).attempts < (p_job).max_attempts and (p_job).run_at < 'infinity'
    and _staged_id_of((p_job).flags) is not null
    and not exists (select from in_flight_jobs f where f.job_id = g.id)
    -- if a copy of it was staged, and its worker died before it completed, it has nothing left to do
    and not exists (
      select from copied_jobs o
      where o.job_id = g.id and o.revision = (p_job).revision);
  if not found then
    return;
  end if;
  perform _stage_parked(
    v_job.policy, v_job.generation,
    -- An id that was never given comes from a forged flag, and would be another job's one day. An adopted job has the
    -- id that it had in Graphile Worker before. A flag that was copied names another job: under its id, this one would
    -- end it in its group.
    case when v_job.staged_id between 1000000000000000 and pg_sequence_last_value(v_ids)
        or (v_job.staged_id < (p_job).id and not exists (
          select from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = v_job.staged_id))
      then v_job.staged_id else nextval(v_ids) end,
    (p_job).id, (p_job).revision, v_job.task_identifier, (p_job).payload, v_job.queue_name, (p_job).run_at,
    (p_job).priority, (p_job).max_attempts, v_job.definition,
    case when v_job.resolves
      then _path_key(v_job.definition, (p_job).payload, v_job.task_identifier) end);
-- It has no key, and fails at its start with the same message. Or PostgreSQL cannot read a text in it, as in _key_or_null:
-- then it goes by its gates when it starts.
exception when sqlstate 'DPKEY' or data_exception then null;
end
$$;
