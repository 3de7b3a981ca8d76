-- Stages jobs added from SQL as a job group, with the rights of the schema's owner. See enqueue_group.
create or replace function :DISPATCH_POLICY_SCHEMA.add_group(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_expires_at timestamptz[],
  p_debounces json[], p_then :GRAPHILE_WORKER_SCHEMA.job_spec
) returns setof staging language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_rows staging[];
begin
  perform _check_callback(p_then);
  perform _refuse_ungoverned(array(select s.identifier from unnest(p_specs) s));
  v_rows := array(select s from :DISPATCH_POLICY_SCHEMA.add_governed(
    p_specs, p_mode, p_partition_keys, null, p_expires_at, p_debounces) s);
  perform _open_group(v_rows, json_build_object(
    'identifier', (p_then).identifier, 'payload', (p_then).payload, 'queueName', (p_then).queue_name,
    'runAt', (p_then).run_at, 'maxAttempts', (p_then).max_attempts, 'jobKey', (p_then).job_key,
    'priority', (p_then).priority, 'flags', (p_then).flags,
    'traceparent', _traceparent(current_setting('dispatch_policy.traceparent', true))));
  return query select r.* from unnest(v_rows) r;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.add_group from public;
