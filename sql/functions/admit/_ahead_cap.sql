-- How many jobs of a policy may be in flight so that workers never wait for a tick: their slots + ahead. By default
-- ahead follows what the workers finish in a second: with instant jobs a fixed 110 held the pace to a fifth. What has
-- finished of the second that is being measured counts too, up to 250, so that workers that start need not wait for it.
-- Null: no bound.
create or replace function :DISPATCH_POLICY_SCHEMA._ahead_cap(limiter :DISPATCH_POLICY_SCHEMA._private_limiters)
returns int language sql stable as $$
  select case
    when p.ahead_auto then s.slots + greatest(
      2 * s.slots, 100, least(ceil(limiter.finished_per_second), 1e6)::int,
      least(limiter.released - limiter.sampled_released, 250)::int)
    else s.slots + p.ahead
  end
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  cross join lateral (
    select coalesce(sum(w.slots), 0)::int as slots
    from :DISPATCH_POLICY_SCHEMA._private_workers w
    where w.stale_at > clock_timestamp()
      and w.tasks && array(select t.task_identifier from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
                           where t.policy_id = p.id)
  ) s
  where p.id = limiter.policy_id;
$$;
