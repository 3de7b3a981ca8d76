-- Parks one job, and stages a row that refers to it.
create or replace function _stage_parked(
  p_policy text, p_version int, p_staged_id bigint, p_job_id bigint, p_revision int, p_task text, p_payload json,
  p_queue_name text, p_run_at timestamptz, p_priority int, p_max_attempts int, p_definition jsonb, p_key text
) returns void language plpgsql as $$
declare
  v_id uuid := case when p_key is not null then _partition_id(p_policy, p_key) end;
  v_due boolean := p_run_at <= clock_timestamp();
begin
  insert into staged_jobs (
    id, partition_id, task_identifier, payload, queue_name, run_at, max_attempts, priority, cost, due, parked_job_id,
    parked_revision)
  overriding system value
  values (p_staged_id, v_id, p_task, p_payload, p_queue_name, p_run_at, p_max_attempts::smallint, p_priority::smallint,
    coalesce((p_definition ->> 'cost')::float8, 1), v_due, p_job_id, p_revision)
  on conflict do nothing;
  if not found then
    -- somebody else has staged it, and parked its row, and the caller has given the row a time since
    perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[s.parked_job_id], run_at => 'infinity', priority => 32767)
    from staged_jobs s where s.parked_job_id = p_job_id;
    return;
  end if;
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[p_job_id], run_at => 'infinity', priority => 32767);
  perform _count_pending(p_policy, 1);
  if v_id is null then
    insert into keyless_jobs (staged_id, policy) values (p_staged_id, p_policy);
  else
    insert into arrivals overriding user value
    select a.* from _work_arrival(
      p_policy, v_id, p_key, p_definition ->> 'shard', p_version, null, (p_definition ->> 'weight')::float8,
      _constant_limits(p_definition), p_run_at, coalesce((p_definition ->> 'cost')::float8, 1),
      v_due, p_priority::smallint, p_run_at, p_staged_id) a;
  end if;
  perform _notify(p_policy);
end
$$;
