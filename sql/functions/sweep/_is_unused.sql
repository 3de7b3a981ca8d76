-- Whether a limiter may be deleted: if it is made again, it has no more than if it had stayed. A limiter that has learnt,
-- and a bucket that code outside jobs may take from, stay as long as an unused partition.
create or replace function _is_unused(
  limiter limiters, p_now timestamptz, p_inactive_after interval,
  p_overridden boolean
) returns boolean language sql stable as $$
  select limiter.in_flight = 0 and case
      when limiter.by_tokens then limiter.refilled_at < p_now - p_inactive_after
        and _is_full(
          _throttle_left(
            limiter, p_now, p_overridden, _context_of(limiter)),
          case when p_overridden then _first_tokens(limiter.policy_id, limiter.gate,
              limiter.scope_key, limiter.numbers, _context_of(limiter), p_now)
            else _throttle_capacity(limiter.numbers) end)
        and (limiter.longest_until > p_now) is not true
      else (limiter.decreased_at >= p_now - p_inactive_after) is not true end;
$$;
