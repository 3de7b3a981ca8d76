-- Raises for a callback from SQL that could not be added when its group has ended: that has to be seen now.
create or replace function _check_callback(p_then :GRAPHILE_WORKER_SCHEMA.job_spec) returns void
language plpgsql as $$
begin
  if (p_then).identifier is null then
    raise exception 'dispatch_policy: then_job: identifier is null, expected the task of the callback' using errcode = 'DPARG';
  end if;
  perform _refuse_ungoverned(array[(p_then).identifier]);
  perform _check_specs(array[p_then]);
  if exists (select from unnest((p_then).flags) f where _is_own_flag(f)) then
    raise exception 'dispatch_policy: then_job: flags that begin with "dispatch_policy:" are reserved' using errcode = 'DPARG';
  end if;
  if coalesce(json_typeof((p_then).payload), 'null') not in ('object', 'null') then
    raise exception 'dispatch_policy: then_job: the payload is of type %, expected an object: the counts are added to it as "_group"',
      json_typeof((p_then).payload) using errcode = 'DPARG';
  end if;
  perform _path_key(
    p.definition, (coalesce(nullif((p_then).payload::jsonb, 'null'), '{}') || '{"_group": {"id": "0"}}')::json,
    (p_then).identifier)
  from policy_tasks t
  join policies p on p.id = t.policy_id
  where t.task_identifier = (p_then).identifier;
end
$$;
