-- What a throttle has left at `now`: a bucket by the numbers in force until then (which its policy's overrides changed,
-- where there are any: `overridden`), a window by its own. No query in it, so that it is inlined.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_holds(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, now timestamptz, overridden boolean
) returns float8 language sql stable as $$
  select case
    when (limiter.numbers).sliding
      then :DISPATCH_POLICY_SCHEMA._window_left(limiter.spent, limiter.numbers, now)
    when overridden then (:DISPATCH_POLICY_SCHEMA._throttle_settled(limiter, now)).tokens
    else :DISPATCH_POLICY_SCHEMA._throttle_tokens(
      limiter.tokens, limiter.refilled_at, limiter.numbers, now)
    end;
$$;
