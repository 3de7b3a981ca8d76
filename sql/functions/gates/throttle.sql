-- Token bucket: tokens = min(capacity, tokens + elapsed * rate / per), elapsed never negative. A mark less than a
-- second ahead of now stays (moving it back would mint its tokens twice); further ahead it is a wrong clock's.
--
-- A smooth bucket holds one token, so that jobs go evenly. Passes come a little after a token is there, and each time what
-- it would have gained since was lost: at 20 a second up to a sixth of the rate. So it goes on filling, by k: what a quarter
-- of a second brings, nine tenths of a token at most. Then the next job goes by so much earlier than per / rate after
-- the late one, as if that had been in time. Why no second has more than the rate and one: at its beginning the bucket
-- holds 1 + k at most, and it gains rate / per; a job that costs 1 takes 1; so 1 + k + rate / per jobs at most, rounded
-- down, which with k < 1 is one more than rate / per, rounded up. (It is the same for a time of any length and what the
-- bucket gains in it.) And two jobs are never closer than (1 - k) * per / rate.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_capacity(rate float8, burst float8)
returns float8 language sql immutable as $$
  select greatest(coalesce(burst, rate), 1);
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._throttle_tokens(
  tokens float8, refilled_at timestamptz, rate float8, per float8, burst float8, smooth boolean, now timestamptz
) returns float8 language sql immutable as $$
  select least(
    greatest(coalesce(burst, rate), 1)
      + case when smooth and burst = 1 then least(greatest(rate, 0) / per * 0.25, 0.9) else 0 end,
    tokens + greatest(extract(epoch from now - refilled_at)::float8, 0) * greatest(rate, 0) / per
  );
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._throttle_mark(refilled_at timestamptz, now timestamptz)
returns timestamptz language sql stable as $$   -- immutable it would not be inlined: 15 us a call, not 0.1
  select case when refilled_at > now + interval '1 second' then now else greatest(refilled_at, now) end;
$$;

-- What a throttle has left at `now`: a bucket by the numbers in force until then (which its policy's overrides changed,
-- where there are any: `overridden`), a window by its own. No query in it, so that it is inlined.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_holds(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, now timestamptz, overridden boolean
) returns float8 language sql stable as $$
  select case
    when limiter.sliding
      then :DISPATCH_POLICY_SCHEMA._window_left(limiter.spent, limiter.rate, limiter.per, now)
    when overridden then (:DISPATCH_POLICY_SCHEMA._throttle_settled(limiter, now)).tokens
    else :DISPATCH_POLICY_SCHEMA._throttle_tokens(
      limiter.tokens, limiter.refilled_at, limiter.rate, limiter.per, limiter.burst, limiter.smooth, now)
    end;
$$;

-- When a throttle lets a job of `cost` through: a bucket at that many tokens, or full when the job is dearer than that.
-- `spent` is a sliding window's, null of a bucket.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_ready_at(
  tokens float8, rate float8, per float8, capacity float8, spent :DISPATCH_POLICY_SCHEMA._private_spending[],
  cost float8, now timestamptz
) returns timestamptz language sql stable as $$
  select case
    when spent is not null and rate > 0 then :DISPATCH_POLICY_SCHEMA._window_ready_at(spent, per, capacity, cost, now)
    else now + make_interval(secs => case
      when rate <= 0 then per
      else least(greatest((least(cost, capacity) - tokens) * per / rate, 0), 1e9) end)
    end;
$$;
