-- Cleans up after jobs that left Graphile Worker without running. Deletes the staged rows of parked ones, counts these in
-- their groups, and marks the slots of the others for the next sweep.
create or replace function _job_gone(p_job_ids bigint[]) returns void language sql volatile as $$
  with waiting as (
    delete from staged_jobs s
    where s.parked_job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id and j.attempts < j.max_attempts)
    returning s.id, s.task_identifier, s.partition_id, s.parked_job_id, s.priority
  ),
  ended as (
    select w.id, case when j.id is null then 'removed' else 'failed' end as outcome
    from waiting w left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = w.parked_job_id
    where j.locked_at is null   -- somebody may have had it retried: while it runs, its own end is awaited
  ),
  counted as materialized (
    select _end_in_groups(array_agg(e.id), null, array_agg(e.outcome)) from ended e
    having count(*) > 0 and exists (select from groups)
  ),
  -- somebody may run a failed job again, so it must not keep the last priority
  restored as materialized (
    select from waiting w
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[w.parked_job_id], priority => w.priority)
  )
  select _count_removed(
    array(select w.task_identifier from waiting w), array(select w.partition_id from waiting w))
  where (select count(*) from restored) + (select count(*) from counted) >= 0;
  select _leave_to_sweep(array(
    select u.id from unnest(p_job_ids) u (id)
    where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null)));
$$;
