-- Raises for a job that is to be debounced, but whose task has no policy: Graphile Worker knows no longest wait.
create or replace function _refuse_debounce(p_task text) returns void language plpgsql as $$
begin
  raise exception 'dispatch_policy: a job of %: it has debounce, expected none: its task has no policy, and Graphile Worker knows no longest wait. Declare a policy, or give run_at with the job key',
    p_task using errcode = 'DPARG';
end
$$;
