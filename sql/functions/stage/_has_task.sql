-- Whether a task is one of this policy's.
create or replace function _has_task(p_policy text, p_task text)
returns boolean language plpgsql stable as $$
begin
  return exists (
    select from policy_tasks t
    join policies p on p.id = t.policy_id
    where t.task_identifier = p_task and p.name = p_policy);
end
$$;
