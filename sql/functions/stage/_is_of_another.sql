-- Whether a task is not one of this policy's.
create or replace function :DISPATCH_POLICY_SCHEMA._is_of_another(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_task text
) returns boolean language sql stable as $$
  select not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
    where t.policy_id = (p_policy).id and t.task_identifier = p_task);
$$;
