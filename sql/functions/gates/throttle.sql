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

-- When a bucket holding `tokens` lets a job of `cost` through: at `cost`, or full when the job is dearer than that.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_ready_at(
  tokens float8, rate float8, per float8, capacity float8, cost float8, now timestamptz
) returns timestamptz language sql stable as $$
  select now + make_interval(secs => case
    when rate <= 0 then per
    else least(greatest((least(cost, capacity) - tokens) * per / rate, 0), 1e9)
  end);
$$;
