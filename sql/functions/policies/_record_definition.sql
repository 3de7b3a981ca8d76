-- Records a definition that a process declares, and by whom. So the one in force can be compared with those that other live
-- workers have. A definition that is in force keeps its declaration: a worker that starts with the same one changes nothing.
--
-- The danger: a definition with a value that differs at each start would leave a row each time. The cure: the next declaration
-- deletes rows that are not in force, are older than a day, and that no live worker pool has.
create or replace function :DISPATCH_POLICY_SCHEMA._record_definition(
  p_policy text, p_hash text, p_definition jsonb, p_host text, p_pid int, p_now timestamptz
) returns void language plpgsql volatile as $$
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies := :DISPATCH_POLICY_SCHEMA._policy(p_policy);
  v_since timestamptz := case when v_policy.definition_hash = p_hash then p_now end;
begin
  insert into :DISPATCH_POLICY_SCHEMA._private_definitions as d (
    policy_id, hash, definition, in_force_at, declared_at, host, pid)
  values (v_policy.id, p_hash, p_definition, v_since, p_now, p_host, p_pid)
  on conflict (policy_id, hash) do update set
    in_force_at = excluded.in_force_at, declared_at = excluded.declared_at, host = excluded.host, pid = excluded.pid
  where d.in_force_at is null;
  update :DISPATCH_POLICY_SCHEMA._private_definitions d set in_force_at = null
  where d.policy_id = v_policy.id and d.hash <> v_policy.definition_hash and d.in_force_at is not null;
  delete from :DISPATCH_POLICY_SCHEMA._private_definitions d
  where d.policy_id = v_policy.id and d.in_force_at is null and d.declared_at < p_now - interval '1 day'
    and not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_workers w
      where w.stale_at > p_now and w.definitions #>> array[p_policy, 'hash'] = d.hash);
end
$$;
