-- What a bucket has now: min(capacity, tokens + elapsed * rate / per), elapsed never negative.
--
-- A smooth bucket holds one token, so that jobs go evenly. Passes come a little after a token is there, and each time what
-- it would have gained since was lost: at 20 a second up to a sixth of the rate. So it goes on filling, by k: what a quarter
-- of a second brings, nine tenths of a token at most. Then the next job goes by so much earlier than per / rate after
-- the late one, as if that had been in time. Why no second has more than the rate and one: at its beginning the bucket
-- holds 1 + k at most, and it gains rate / per; a job that costs 1 takes 1; so 1 + k + rate / per jobs at most, rounded
-- down, which with k < 1 is one more than rate / per, rounded up. (It is the same for a time of any length and what the
-- bucket gains in it.) And two jobs are never closer than (1 - k) * per / rate.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_tokens(
  tokens float8, refilled_at timestamptz, numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers, now timestamptz
) returns float8 language sql immutable as $$
  select least(
    :DISPATCH_POLICY_SCHEMA._throttle_capacity(numbers)
      + case when (numbers).smooth and (numbers).burst = 1
        then least(greatest((numbers).rate, 0) / (numbers).per * 0.25, 0.9) else 0 end,
    tokens + greatest(extract(epoch from now - refilled_at)::float8, 0) * greatest((numbers).rate, 0) / (numbers).per
  );
$$;
