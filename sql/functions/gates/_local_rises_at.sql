-- When the cap of _local_cap rises next.
create or replace function _local_rises_at(
  limiter limiters, now timestamptz
) returns timestamptz language sql stable as $$
  select case when now < limiter.local_until then limiter.local_until
    -- a microsecond later than the sum, which is rounded: else passes would look just before it rises
    else limiter.local_until + make_interval(
      secs => (_local_steps(limiter, now) + 1) * limiter.local_delay + 0.000001) end;
$$;
