-- How many live worker pools have a task of this policy and take jobs. Each has its share of a gate with `perWorker`.
create or replace function :DISPATCH_POLICY_SCHEMA._live_pools(p_policy_id int) returns int language sql stable as $$
  select count(*)::int from :DISPATCH_POLICY_SCHEMA._private_workers w
  where w.stale_at > clock_timestamp() and w.slots > 0 and w.tasks && (
    select array_agg(x.task_identifier) from :DISPATCH_POLICY_SCHEMA._private_policy_tasks x where x.policy_id = p_policy_id);
$$;
