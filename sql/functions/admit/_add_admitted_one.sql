-- Gives Graphile Worker one job that was never staged, as _add_admitted_plain does with staged ones.
--
--   p_run_at   as given; null: none was
create or replace function _add_admitted_one(
  p_policy policies, p_partition partitions,
  p_staged_id bigint, p_task text, p_payload json, p_run_at timestamptz, p_max_attempts int, p_priority int,
  p_traceparent text, p_now timestamptz
) returns table (id bigint, revision int) language plpgsql volatile rows 1 as $$
#variable_conflict use_column
declare
  v_run_at timestamptz := case when p_run_at is not null then _run_at(p_run_at)
    else clock_timestamp() - _clocks_behind() - case   -- as _add_admitted
      when _is_new(p_policy, (p_partition).admitted_at, p_now) then interval '900 milliseconds'
      else '0' end
    end;
begin
  return query
  select j.id, j.revision from :GRAPHILE_WORKER_SCHEMA.add_jobs(array[row(
      p_task, coalesce(p_payload, '{}'), null, v_run_at, p_max_attempts, null, p_priority,
      array[_ticket(
        p_staged_id, _admission_now(), (p_partition).id, null,
        _trace_text(left(p_traceparent, 55), p_now, v_run_at, p_run_at is not null))]
    ):::GRAPHILE_WORKER_SCHEMA.job_spec]) j;
end
$$;
