-- How many live worker pools have a task of this policy and take jobs. Each has its share of a gate with `perWorker`.
create or replace function _live_pools(p_policy_id int) returns int language plpgsql stable as $$
begin
  return (
    select count(*)::int from workers w
    where w.stale_at > clock_timestamp() and w.slots > 0 and w.tasks && (
      select array_agg(x.task_identifier) from policy_tasks x where x.policy_id = p_policy_id));
end
$$;
