-- One step of adoption for a worker that catches many jobs: see _adopt. `busy`: another session adopts jobs of this policy,
-- so there was none. No row: the task has no policy, or its policy is switched off.
--
-- The policy may be declared anew, or switched off, before this session has the turn. So its row is read again then.
create or replace function _adopt_unless_busy(p_task text, p_after bigint, p_limit int)
returns table (busy boolean, matched int, changed int, last_id bigint) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy policies;
  v_turn_of int;   -- whose turn this session has
begin
  loop
    select p.* into v_policy from policies p
    join policy_tasks t on t.policy_id = p.id
    where t.task_identifier = p_task and p.enabled;
    if v_policy.id is null then
      return;
    end if;
    exit when v_policy.id = v_turn_of;
    busy := not _try_lock_turn(v_policy.id, 'adopt');
    exit when busy;
    v_turn_of := v_policy.id;
  end loop;
  if not busy then
    select a.matched, a.changed, a.last_id into matched, changed, last_id
    from _adopt(v_policy, p_task, p_after, p_limit) a;
    if changed > 0 then
      perform _audit('adopt', v_policy.name, null, null, null,
        jsonb_build_object('task', p_task, 'after', p_after, 'last_id', last_id), null, 'worker', matched, changed);
    end if;
  end if;
  return next;
end
$$;
