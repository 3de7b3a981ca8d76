-- Deletes staged jobs whose place other jobs take, and what is noted of them. The caller has locked them.
--
-- A job without a partition has a note that asks for its key. _keyless_jobs locks such notes while JavaScript works the
-- keys out, and a caller of this may hold limiters: it must not wait. So a note that is locked is left. _keyless_jobs
-- deletes notes whose job is gone.
create or replace function :DISPATCH_POLICY_SCHEMA._drop_staged(p_ids bigint[]) returns void language plpgsql as $$
declare
  v_tasks text[];
  v_partition_ids uuid[];
begin
  with dropped as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = any(p_ids)
    returning s.task_identifier, s.partition_id
  ),
  keyless as (
    delete from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k where k.staged_id = any(array(
      select x.staged_id from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs x
      where x.staged_id = any(p_ids) for update skip locked))
  )
  select array_agg(d.task_identifier), array_agg(d.partition_id) into v_tasks, v_partition_ids from dropped d;
  perform :DISPATCH_POLICY_SCHEMA._head_changed(v_partition_ids);
  perform :DISPATCH_POLICY_SCHEMA._count_removed(v_tasks);
end
$$;
