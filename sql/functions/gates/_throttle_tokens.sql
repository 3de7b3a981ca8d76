-- What a bucket has now: min(capacity + k, tokens + elapsed * rate / per), elapsed never negative. k is 0 unless it is
-- smooth.
--
-- A smooth bucket has one token, so that jobs go evenly. A pass comes a little after a token is there, and each time the
-- bucket would lose the tokens it gained since then. At 20 a second that was up to a sixth of the rate. So it fills on,
-- by k: a quarter of a second's tokens, nine tenths of a token at most. After a late job, the next one is that much
-- earlier than per / rate, as if the late one had been in time.
--
-- No second has more than the rate and one. At its beginning the bucket has 1 + k at most, and it gains rate / per. A job
-- of cost 1 draws 1. That makes 1 + k + rate / per jobs at most, rounded down. With k < 1 this is one more than rate /
-- per, rounded up. (So it is for a time of any length and what the bucket gains in it.) Two jobs are at least
-- (1 - k) * per / rate apart.
create or replace function _throttle_tokens(
  tokens float8, refilled_at timestamptz, numbers gate_numbers, now timestamptz
) returns float8 language sql immutable as $$
  select least(
    _throttle_capacity(numbers)
      + case when (numbers).smooth and (numbers).burst = 1
        then least(greatest((numbers).rate, 0) / (numbers).per * 0.25, 0.9) else 0 end,
    tokens + greatest(extract(epoch from now - refilled_at)::float8, 0) * greatest((numbers).rate, 0) / (numbers).per
  );
$$;
