-- How many times `local_delay` has passed since `local_until`.
create or replace function _local_steps(
  limiter limiters, now timestamptz
) returns float8 language sql stable as $$
  select floor(least(extract(epoch from now - limiter.local_until)::float8 / limiter.local_delay, 1e9));
$$;
