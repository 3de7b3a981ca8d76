-- Whether a task is one of this policy's.
create or replace function :DISPATCH_POLICY_SCHEMA._has_task(p_policy text, p_task text)
returns boolean language sql stable as $$
  select exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = t.policy_id
    where t.task_identifier = p_task and p.name = p_policy);
$$;
