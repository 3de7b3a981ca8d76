-- An exponentially decayed count, of jobs or of seconds. A mark ahead of now counts as no age. The age is clamped, and
-- what is nearly nothing is nothing: PostgreSQL raises an error where a product underflows, which failed every tick from
-- the second long idle time of a partition on. (What is left of 1e-9 after the greatest age can still be divided by a weight.)
create or replace function :DISPATCH_POLICY_SCHEMA._decayed(
  admits float8, marked_at timestamptz, half_life float8, now timestamptz
) returns float8 language sql immutable as $$
  select case when half_life is null or admits < 1e-9 then 0 else
    admits * exp(greatest(least(-extract(epoch from now - marked_at)::float8 * ln(2) / half_life, 0), -500))
  end;
$$;
