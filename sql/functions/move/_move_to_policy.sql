-- Moves these staged jobs, which the caller has locked, to a policy, mostly another one. A process that has it works out
-- their partitions at its next tick, as for jobs whose key only JavaScript knows. Returns how many left the old one.
--
--   p_verb   who moves them, for the error
--   p_key    the key of their partition; null: it is worked out as well
--
-- The payload of a parked job is in Graphile Worker alone. If Graphile Worker has it no longer, it leaves without a trace.
create or replace function _move_to_policy(
  p_verb text, p_into policies, p_key text, p_ids bigint[]
) returns int language plpgsql volatile as $$
declare
  v_moved int;
begin
  perform _refuse_tasks(p_verb, p_into, array(
    select distinct s.task_identifier from staged_jobs s where s.id = any(p_ids)));
  delete from keyless_jobs k where k.staged_id = any(p_ids);
  with parked as materialized (   -- without a change, it locks the rows and returns them as they are
    select j.id, j.payload from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(
      select s.parked_job_id from staged_jobs s
      where s.id = any(p_ids) and s.parked_job_id is not null)) j
  ),
  consumed as (
    delete from staged_jobs s
    where s.id = any(p_ids) and s.parked_job_id is not null and s.parked_job_id not in (select k.id from parked k)
    returning s.partition_id
  ),
  moved as (
    update staged_jobs s set
      partition_id = null, due = s.run_at <= clock_timestamp(), retry_at = null, failures = 0, error = null,
      payload = coalesce(k.payload, s.payload),
      -- a deadline means nothing under strict order, and neither that a job has begun means anything by deadlines
      sort_at = case when (p_into).job_order = 'deadline' then nullif(s.sort_at, '-infinity')
        when (p_into).job_order = 'strict' and s.sort_at = '-infinity' then s.sort_at end,
      droppable = _is_droppable((p_into).when_full, (p_into).max_pending_in_all)
    from staged_jobs x left join parked k on k.id = x.parked_job_id
    where x.id = any(p_ids) and s.id = x.id and (s.parked_job_id is null or k.id is not null)
    returning s.id, x.partition_id
  ),
  left_behind as materialized (
    select _head_changed(array(
      select c.partition_id from consumed c union all select m.partition_id from moved m), -1)
  ),
  keyless as (
    insert into keyless_jobs (staged_id, policy, partition_key)
    select m.id, (p_into).name, p_key from moved m
  )
  -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
  select count(*) into v_moved from moved where (select count(*) from left_behind) > 0;
  perform _count_pending((p_into).name, v_moved);
  perform _notify((p_into).name);
  return cardinality(p_ids);
end
$$;
