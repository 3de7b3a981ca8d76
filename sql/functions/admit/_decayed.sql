-- An exponentially decayed count, of jobs or of seconds. A time ahead of now counts as no age.
--
-- The age is clamped, and a tiny result becomes 0, because PostgreSQL raises an error if a product underflows. That error
-- failed every tick after a partition's second long idle time. (What is left of 1e-9 after the greatest age can still be
-- divided by a weight.)
create or replace function _decayed(
  admits float8, decayed_at timestamptz, half_life float8, now timestamptz
) returns float8 language sql immutable as $$
  select case when half_life is null or admits < 1e-9 then 0 else
    admits * exp(greatest(least(-extract(epoch from now - decayed_at)::float8 * ln(2) / half_life, 0), -500))
  end;
$$;
