-- Whether the definition in force is another one than the newest of the live worker pools, or lacks tasks that only a policy
-- without live pools governs.
create or replace function _is_behind(p_policy policies)
returns boolean language plpgsql stable as $$
declare
  v_live text := _newest_live(p_policy);
begin
  return v_live <> (p_policy).definition_hash or (v_live is not null and exists (
    select from policy_tasks t
    join policies x on x.id = t.policy_id
    where x.id <> (p_policy).id and (p_policy).definition -> 'tasks' ? t.task_identifier
      and _newest_live(x) is null));
end
$$;
