-- Stages the jobs of a call as a job group, with the rights of the schema's owner. When all of them have ended for good, the
-- callback is added. It takes batches as _stage does.
--
--   p_then     the callback, see groups.callback; with "policy" if the calling process knows its policy
--   group_id   null: the call has no jobs, and the callback was added at once
create or replace function :DISPATCH_POLICY_SCHEMA.enqueue_group(
  p_batches json, p_mode text, p_payloads text[], p_then json
) returns table (
  n int, staged boolean, id bigint, task_identifier text, queue_name text, run_at timestamptz, max_attempts int, job_key text,
  priority int, flags text[], created_at timestamptz, policy text, partition text, shard text, job json, group_id bigint
) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_rows staging[];
  v_group_id bigint;
begin
  perform _refuse_ungoverned(array(
    select j.value ->> 'task' from json_array_elements(p_batches) b
    cross join lateral json_array_elements(b.value -> 'jobs') j where b.value ->> 'policy' is null)
    || case when p_then ->> 'policy' is null then p_then ->> 'identifier' end);
  v_rows := array(select s from _stage(p_batches, p_mode, p_payloads) s);
  v_group_id := _open_group(v_rows, p_then);
  return query
  select r.n, r.staged, r.id, r.task_identifier, r.queue_name, r.run_at, r.max_attempts, r.job_key, r.priority, r.flags,
    r.created_at, r.policy, r.partition, r.shard, r.job, v_group_id
  from unnest(v_rows) r;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.enqueue_group from public;
