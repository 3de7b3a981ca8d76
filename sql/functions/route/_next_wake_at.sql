-- When the router looks at a limiter's waiters again, after it woke `woken` of `waiting`. Null: at the next freed row.
--
-- The danger: cheap jobs would use each token that a dearer one waits for. The cure: a shared throttle serves its waiters in
-- fair order. The router looks again when there are enough tokens for the next waiter's job. If it has just woken others, it
-- looks again after 50 ms at most, because those may need no token.
--
--   room        how many were looked at      cost    what the jobs of those woken cost
--   next_cost   what the job of the first that was not woken costs
create or replace function _next_wake_at(
  l room_before, room int, waiting bigint, woken bigint, cost float8, next_cost float8,
  now timestamptz
) returns timestamptz language sql stable as $$
  select case
    when (l).tokens is not null then
      case when waiting > woken then greatest(
        now + interval '1 millisecond',
        least(
          case when woken > 0 then now + interval '50 milliseconds' end,
          _throttle_ready_at(
            (l).tokens - cost, (l).rate, (l).per, (l).capacity,
            case when (l).spent is not null
              then _window_spend((l).spent, (l).window_seconds, (l).remembered, cost, now) end,
            (l).calendar, coalesce(next_cost, 0), now))) end
    when woken < least(waiting, room) then now + interval '1 millisecond'   -- another transaction has locked some
    when (l).ending > 0 and waiting > woken then now + interval '10 milliseconds'
    -- who begins to wait later does not ask again when the cap rises
    else least(case when (l).reserved_for is not null then (l).reserved_until end, (l).rises_at) end;
$$;
