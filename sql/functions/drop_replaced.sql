-- A job of a task without a policy takes the place of a staged one of its key, as it would in Graphile Worker: without
-- this, the older one would take its place later, at its admission.
create or replace function :DISPATCH_POLICY_SCHEMA._drop_replaced(p_job_keys text[]) returns void language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tasks text[];
  v_partition_ids uuid[];
begin
  with replaced as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.job_key = any(p_job_keys)
    returning s.id, s.task_identifier, s.partition_id
  ),
  keyless as (
    delete from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k where k.staged_id in (select r.id from replaced r)
  )
  select array_agg(r.task_identifier), array_agg(r.partition_id) into v_tasks, v_partition_ids from replaced r;
  if v_tasks is not null then
    perform :DISPATCH_POLICY_SCHEMA._head_changed(v_partition_ids);
    perform :DISPATCH_POLICY_SCHEMA._count_removed(v_tasks);
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA._drop_replaced from public;
