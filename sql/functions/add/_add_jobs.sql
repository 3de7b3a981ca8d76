-- Stages jobs added from SQL if their task has a policy. Passes the others on to Graphile Worker, with the caller's rights.
create or replace function _add_jobs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_expires_at timestamptz[],
  p_debounce json default null, p_then :GRAPHILE_WORKER_SCHEMA.job_spec default null
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language plpgsql as $$
#variable_conflict use_column
declare
  v_debounces json[] := case when p_debounce is not null
    then array_fill(p_debounce, array[coalesce(cardinality(p_specs), 0)]) end;
begin
  if p_then is distinct from null then
    return query
    select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
      a.created_at, a.policy, a.partition, a.shard, a.id is null or (a.staged and a.job is not null)
    from :DISPATCH_POLICY_SCHEMA.add_group(
      p_specs, p_mode, p_partition_keys, p_expires_at, v_debounces, p_then) a order by a.n;
    return;
  end if;
  return query
  select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
    a.created_at, a.policy, a.partition, a.shard, a.id is null or (a.staged and a.job is not null)
  from _stage_specs(p_specs, p_mode, p_partition_keys, null, p_expires_at, v_debounces) a order by a.n;
end
$$;
