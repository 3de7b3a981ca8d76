-- How far down settle and sync may bring a bucket: to a debt of what it gains in its `per`. So after `per` the debt is paid,
-- as a window forgets after `per`. A bucket that an override halts goes by its own rate.
create or replace function _lowest_tokens(rate float8, own_rate float8)
returns float8 language sql immutable as $$
  select -greatest(case when rate > 0 then rate else own_rate end, 0);
$$;
