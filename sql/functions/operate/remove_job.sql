-- Removes the job of this key wherever it is: staged, or Graphile Worker's by its own remove_job. A key that is remembered
-- (`uniqueFor`) is forgotten, so that the next job of it is added.
create or replace function :DISPATCH_POLICY_SCHEMA.remove_job(job_key text)
returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql strict
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_removed :DISPATCH_POLICY_SCHEMA.added_job;
  v_staged staged_jobs;
  v_job record;
begin
  delete from unique_keys k where k.job_key = remove_job.job_key and k.policy_id in (
    select p.id from policies p where p.unique_for is not null);
  perform _before_change(array(
    select s.id from staged_jobs s where s.job_key = remove_job.job_key));
  perform _record_removed(array(
    select s.id from staged_jobs s where s.job_key = remove_job.job_key), 'removed');
  delete from staged_jobs s where s.job_key = remove_job.job_key
  returning s.* into v_staged;
  if v_staged.id is not null then
    v_removed := row(v_staged.id, true, v_staged.task_identifier, v_staged.queue_name, v_staged.run_at,
      v_staged.max_attempts::int, v_staged.job_key, v_staged.priority::int, v_staged.flags, v_staged.created_at,
      null, null, null, null);
    perform _count_removed(array[v_staged.task_identifier], array[v_staged.partition_id]);
  end if;
  select j.id, j.run_at, j.max_attempts, j.key, j.priority, j.created_at into v_job
  from :GRAPHILE_WORKER_SCHEMA.remove_job(remove_job.job_key) j;
  if v_job.id is null and v_removed.id is null and exists (
    select from staged_jobs s where s.job_key = remove_job.job_key
  ) then   -- it was adopted between the two looks
    return :DISPATCH_POLICY_SCHEMA.remove_job(remove_job.job_key);
  end if;
  if v_job.id is not null then
    perform _before_change(array[v_job.id]);   -- it may be parked
    perform _job_gone(array[v_job.id]);
    if v_removed.id is null then
      v_removed := row(v_job.id, false, null, null, v_job.run_at, v_job.max_attempts::int, v_job.key,
        v_job.priority::int, null, v_job.created_at, null, null, null, null);
    end if;
  end if;
  return v_removed;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove_job from public;
