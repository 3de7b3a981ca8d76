-- Raises if one of these tasks has no policy: of a job of such a task nobody sees the end.
create or replace function _refuse_ungoverned(p_tasks text[]) returns void language plpgsql as $$
declare
  v_task text := (
    select u.task from unnest(p_tasks) u (task)
    where u.task is not null and not exists (
      select from policy_tasks t where t.task_identifier = u.task)
    limit 1);
begin
  if v_task is not null then
    raise exception 'dispatch_policy: a job group has a job of %, expected tasks that have a policy: nobody sees the end of other jobs. Declare a policy for it, or add it in a call of its own',
      v_task using errcode = 'DPARG';
  end if;
end
$$;
