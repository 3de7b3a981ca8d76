-- Token bucket: tokens = min(capacity, tokens + elapsed * rate / per), elapsed never negative. A mark less than a
-- second ahead of now stays (moving it back would mint its tokens twice); further ahead it is a wrong clock's.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_capacity(rate float8, burst float8)
returns float8 language sql immutable as $$
  select greatest(coalesce(burst, rate), 1);
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._throttle_tokens(
  tokens float8, refilled_at timestamptz, rate float8, per float8, burst float8, now timestamptz
) returns float8 language sql immutable as $$
  select least(
    greatest(coalesce(burst, rate), 1),
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
      limiter.tokens, limiter.refilled_at, limiter.rate, limiter.per, limiter.burst, now)
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
