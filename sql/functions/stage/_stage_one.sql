-- Stages a call of one job without a job key, which is the most frequent one. It writes the same rows as _stage_batch, by
-- small statements. The start of the large statement took two thirds of the call (2.0 ms, now 0.8, as
-- graphile_worker.add_job).
create or replace function _stage_one(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_droppable boolean
) returns setof staging language plpgsql
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_job record;
  v_partition record;
  v_partition_id uuid;
  v_staged record;
begin
  select * into v_job from _job_records(p_jobs) j;
  select * into v_partition from json_to_record(p_partitions -> v_job.p)
    as k (key text, shard text, context jsonb, weight float8, limits jsonb);
  if v_partition.key is not null then
    v_partition_id := _partition_id(p_policy, v_partition.key);
  end if;
  insert into staged_jobs as s (
    partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, preserve_run_at, priority, flags, cost,
    due, created_at, droppable, traceparent, expires_at, sort_at)
  values (
    v_partition_id, v_job.task, coalesce(v_job.payload, '{}'), v_job."queueName", _run_at(v_job."runAt"),
    v_job."runAt" is not null,
    v_job."maxAttempts"::smallint, false, coalesce(v_job.priority, 0)::smallint, v_job.flags, coalesce(v_job.cost, 1),
    _run_at(v_job."runAt") <= v_now, v_now, p_droppable,
    left(v_job.traceparent, 55), v_job.expires_at, v_job.sort_at)
  returning s.id, s.run_at, s.max_attempts, s.priority, s.cost, s.due into v_staged;
  if v_partition_id is null then
    insert into keyless_jobs (staged_id, policy, partition_key)
    values (v_staged.id, p_policy, v_job.key);
  else
    insert into arrivals overriding user value
    select a.* from _work_arrival(
      p_policy, v_partition_id, v_partition.key, coalesce(v_partition.shard, 'default'), p_version, v_partition.context,
      v_partition.weight, v_partition.limits, v_staged.run_at, v_staged.cost, v_staged.due, v_staged.priority,
      v_staged.run_at, v_staged.id) a;
  end if;
  perform _notify(p_policy);
  return query select v_job.n, true, v_staged.id, v_job.task, v_job."queueName", v_staged.run_at,
    _max_attempts(v_staged.max_attempts), null::text, v_staged.priority::int, v_job.flags, v_now, p_policy,
    v_partition.key, case when v_job.p is not null then coalesce(v_partition.shard, 'default') end, null::json, false;
end
$$;
