-- Gives staged jobs with preserve_run_at the times of the jobs that adoption takes out of Graphile Worker for them. Such a job
-- keeps the time of the one it replaces. Once that one is gone, nobody knows its time, and the staged job would run at once.
--
-- A staged job that is quarantined stays so. Its partition may have another next job then, so routing looks at it again.
create or replace function _keep_times(
  p_job_keys text[], p_run_ats timestamptz[], p_given boolean[]
) returns void language plpgsql as $$
declare
  v_partition_ids uuid[];
begin
  with kept as (
    update staged_jobs s set
      run_at = u.run_at, run_at_given = u.given, due = u.run_at <= clock_timestamp() and s.retry_at is null
    from unnest(p_job_keys, p_run_ats, p_given) u (job_key, run_at, given)
    where s.job_key = u.job_key and s.preserve_run_at
    returning s.*
  ),
  arrived as (
    insert into arrivals overriding user value
    select a.* from kept t
    cross join lateral _policy_and_key_of(t.partition_id) k
    cross join lateral _work_arrival(
      k.policy, t.partition_id, k.key, null, 0, null, null, null, t.run_at, t.cost, t.due, t.priority, t.run_at, t.id,
      p_jobs => 0) a
  )
  select array_agg(t.partition_id) into v_partition_ids from kept t;
  perform _head_changed(v_partition_ids);
end
$$;
