-- How many jobs of each worker pool may end before a release and a pass must bring more. `ahead` is the policy's ahead bound.
--
-- It is half of the jobs that wait for a worker slot: the workers run the other half meanwhile. A time would not do. The pace
-- is a mean, which counts the moments without jobs. So workers may run what waits much sooner than it says.
--
-- 0: more must come at once, because less waits than they finish in 0.15 s. While a job of a long task waits for a slot, the
-- next pass brings no more, and it is 0 as well.
create or replace function _may_end(
  ahead limiters, p_now timestamptz
) returns int language plpgsql stable as $$
begin
  return (
    select case
      when p.pace > 0 and ahead.in_flight - s.assumed >= p.pace * 0.15 and ahead.long_waits_until <= p_now
      then greatest((ahead.in_flight - s.assumed) / 2 / greatest(s.pools, 1), 1) else 0 end
    from _worker_slots(ahead.policy_id) s
    cross join lateral (select min(d.seconds) as seconds from unnest(ahead.durations) d) d
    cross join lateral (select _pace(ahead, s.slots, d.seconds, p_now) as pace) p);
end
$$;
