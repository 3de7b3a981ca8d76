-- Whether the workers have enough to do for 0.15 s beside the jobs that run: until the next pass has brought more. `ahead`
-- is the policy's ahead bound. While a job of a long task waits for a slot, the next pass brings no more.
create or replace function :DISPATCH_POLICY_SCHEMA._is_enough(
  ahead :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns boolean language sql stable as $$
  select p.pace > 0 and ahead.in_flight - s.assumed >= p.pace * 0.15 and ahead.long_waits_until <= p_now
  from :DISPATCH_POLICY_SCHEMA._worker_slots(ahead.policy_id) s
  cross join lateral (select :DISPATCH_POLICY_SCHEMA._pace(ahead, s.slots, p_now) as pace) p;
$$;
