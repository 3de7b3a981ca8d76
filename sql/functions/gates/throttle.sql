-- A token bucket: (numbers, state, now) to tokens, and to the time when there are enough.

-- What a bucket has now: min(capacity + k, tokens + elapsed * rate / per), elapsed never negative. k is 0 unless it is
-- smooth.
--
-- A smooth bucket has one token, so that jobs go evenly. A pass comes a little after a token is there, and each time the bucket
-- would lose the tokens it gained since then. So it fills on, by k: a quarter of a second's tokens, nine tenths of a token at
-- most. After a late job, the next one is that much earlier than per / rate, as if the late one had been in time.
--
-- No second has more than the rate and one. At its beginning the bucket has 1 + k at most, and it gains rate / per. A job
-- of cost 1 draws 1. That makes 1 + k + rate / per jobs at most, rounded down. With k < 1 this is one more than rate /
-- per, rounded up. (So it is for a time of any length.) Two jobs are at least (1 - k) * per / rate apart.
create or replace function _throttle_tokens(tokens float8, refilled_at timestamptz, numbers gate_numbers, now timestamptz)
returns float8 language sql immutable as $$
  select least(
    _throttle_capacity(numbers)
      + case when (numbers).smooth and (numbers).burst = 1
        then least(greatest((numbers).rate, 0) / (numbers).per * 0.25, 0.9) else 0 end,
    tokens + greatest(extract(epoch from now - refilled_at)::float8, 0) * greatest((numbers).rate, 0) / (numbers).per
  );
$$;

-- How many tokens a full bucket has, or a window in which nothing was spent. A calendar window has its rate, also one below
-- one: it has no longer window instead.
create or replace function _throttle_capacity(numbers gate_numbers) returns float8 language sql immutable as $$
  select case when (numbers).calendar is not null and (numbers).rate > 0 then (numbers).rate
    else greatest(coalesce(case when (numbers).sliding is not true then (numbers).burst end, (numbers).rate), 1) end;
$$;

-- When a throttle lets a job of `cost` through, by the rule of _lets_through. `spent` is a window's, null for a bucket.
-- `calendar` is a calendar window's: all that was spent in it returns at its end.
create or replace function _throttle_ready_at(
  tokens float8, rate float8, per float8, capacity float8, spent spending[],
  calendar text, cost float8, now timestamptz
) returns timestamptz language sql stable as $$
  select case
    when calendar is not null and rate > 0
      then case when _lets_through(tokens, capacity, cost) then now else _calendar_ends_at(calendar, now, 0) end
    when spent is not null and rate > 0 then _window_ready_at(spent, per, capacity, cost, now)
    else now + make_interval(secs => case
      when rate <= 0 then per
      else least(greatest((least(cost, capacity) - tokens) * per / rate, 0), 1e9) end)
    end;
$$;

-- Whether a throttle lets a job of this cost go: it has as many tokens, or it is full. So a job dearer than a full bucket
-- does not wait for ever; it leaves the bucket in debt. 1e-9 is for sums that were rounded.
--
-- `capacity` infinite: only tokens count, for jobs that go behind another one. `cost` as great as `capacity`: whether it is
-- full.
create or replace function _lets_through(tokens float8, capacity float8, cost float8)
returns boolean language sql immutable as $$
  select tokens >= least(cost, capacity) - 1e-9;
$$;

-- Until when a bucket counts as filled, after it was looked at. If the time is less than a second ahead of now, it stays,
-- because moving it back would bring its tokens twice. A time further ahead comes from a wrong clock.
create or replace function _throttle_filled_at(refilled_at timestamptz, now timestamptz)
returns timestamptz language sql stable as $$   -- immutable it would not be inlined: 15 us a call, not 0.1
  select case when refilled_at > now + interval '1 second' then now else greatest(refilled_at, now) end;
$$;

-- How far down settle and sync may bring a bucket: to a debt of what it gains in its `per`. So after `per` the debt is paid,
-- as a window forgets after `per`. A bucket that an override halts goes by its own rate.
create or replace function _lowest_tokens(rate float8, own_rate float8) returns float8 language sql immutable as $$
  select -greatest(case when rate > 0 then rate else own_rate end, 0);
$$;

-- How many jobs of this cost a throttle lets go, one after the other, by the rule of _lets_through; a million at most.
create or replace function _jobs_through(tokens float8, capacity float8, cost float8)
returns float8 language sql immutable as $$
  select case when cost = 0 and tokens >= 0 then 1e6   -- it needs no token
    else greatest(
      least(floor((tokens + 1e-9) / greatest(cost, 1e-9)), 1e6),
      case when _lets_through(tokens, capacity, capacity) then 1 end) end;
$$;

-- Whether a limiter has no room for a partition's next job, which takes so many slots: too few slots, too few tokens, or a rate of
-- zero. Slots that are reserved for another partition do not count.
create or replace function _lacks_room(
  slots int, reserved_for uuid, reserved int, tokens float8, capacity float8, rate float8, partition_id uuid, cost float8, takes int
) returns boolean language sql immutable as $$
  select slots - case when reserved_for <> partition_id then reserved else 0 end < takes
    or not _lets_through(tokens, capacity, cost)
    or (tokens is not null and rate <= 0);
$$;
