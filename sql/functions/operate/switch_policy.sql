-- Switches a policy off or on at run time. If it is off, jobs are added past it, and the next tick wakes its partitions and
-- admits staged jobs without gates. `dry_run` only counts, as that of pause.
create or replace function :DISPATCH_POLICY_SCHEMA.switch_policy(
  policy text, enabled boolean, reason text default null, by text default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy(switch_policy.policy);
begin
  if switch_policy.enabled is null then
    raise exception 'dispatch_policy: switch_policy: enabled is null, expected true or false' using errcode = 'DPARG';
  end if;
  if switch_policy.dry_run then
    select w.matched, 0, w.partitions, w.staged, w.in_flight into matched, changed, partitions, staged, in_flight
    from _would_reach(switch_policy.policy, null, false) w;
    return next;
    return;
  end if;
  update policies p set operator_enabled = switch_policy.enabled
  where p.id = v_policy.id;
  matched := 1;
  changed := case when v_policy.enabled is distinct from switch_policy.enabled then 1 else 0 end;
  perform _audit('switch_policy', switch_policy.policy, null, null, null,
    jsonb_build_object('enabled', switch_policy.enabled), switch_policy.reason, switch_policy.by, matched, changed);
  perform _notify(switch_policy.policy);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.switch_policy from public;
