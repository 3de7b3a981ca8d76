-- Parks jobs that have failed before, and stages a row that refers to each, as a retry of this package's own. They stay in
-- Graphile Worker with their attempts and their last error.
--
-- Raises lock_not_available if one of the jobs was fetched or replaced since it was looked at.
create or replace function _park_waiting(
  p_policy policies, p_task text,
  p_jobs waiting_job[], out moved int, out unkeyed bigint[]
) language plpgsql as $$
declare
  v_resolves boolean := ((p_policy).definition ->> 'resolvesInSql')::boolean;
  v_job record;
begin
  moved := 0;
  unkeyed := '{}';
  for v_job in
    -- without a change, it locks the rows and returns them as they are
    select j.*, w.queue_name, (j.revision, j.attempts) <> (w.revision, w.attempts) as changed,
      case when v_resolves
        then _key_or_null((p_policy).definition, j.payload, p_task) end as partition_key
    from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(select u.id from unnest(p_jobs) u)) j
    join unnest(p_jobs) w on w.id = j.id
    order by j.id
  loop
    if v_job.changed then
      raise exception 'dispatch_policy: a job changed meanwhile' using errcode = 'lock_not_available';
    elsif v_resolves and v_job.partition_key is null then
      unkeyed := unkeyed || v_job.id;
    else
      perform _stage_parked(
        (p_policy).name, (p_policy).generation,
        nextval(pg_get_serial_sequence('staged_jobs', 'id')),
        v_job.id, v_job.revision, p_task, v_job.payload, v_job.queue_name, v_job.run_at, v_job.priority,
        v_job.max_attempts, (p_policy).definition, v_job.partition_key);
      moved := moved + 1;
    end if;
  end loop;
end
$$;
