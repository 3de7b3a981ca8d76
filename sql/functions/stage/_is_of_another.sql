-- Whether a task is not one of this policy's.
create or replace function _is_of_another(
  p_policy policies, p_task text
) returns boolean language plpgsql stable as $$
begin
  return not exists (
    select from policy_tasks t
    where t.policy_id = (p_policy).id and t.task_identifier = p_task);
end
$$;
