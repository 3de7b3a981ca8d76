-- Raises if one of these tasks, which waiting jobs have, is not of the policy that gets the jobs.
--
--   p_verb   who moves them, for the error
create or replace function _refuse_tasks(
  p_verb text, p_into policies, p_tasks text[]
) returns void language plpgsql stable as $$
declare
  v_foreign text := (
    select min(u.task) from unnest(p_tasks) u (task) where not exists (
      select from policy_tasks t
      where t.task_identifier = u.task and t.policy_id = (p_into).id));
begin
  if v_foreign is not null then
    raise exception 'dispatch_policy: %: a waiting job has the task %, expected a task of policy %: declare it there, or remove or unstage these jobs',
      p_verb, quote_literal(v_foreign), quote_literal((p_into).name) using errcode = 'DPARG';
  end if;
end
$$;
