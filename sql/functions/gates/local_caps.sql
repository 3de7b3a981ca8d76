-- A cap that is lowered for a moment because a job came back from a full worker pool.

-- How many jobs may be in flight for now, because a worker pool has requeued one. Null: none has, or the clock was ahead
-- then.
--
-- The danger: the job would go to the same full pool again at once, and again. The cure: until `local_until` no more may be
-- in flight than were after it came back. Then one more may, and with each `local_delay` twice as many more. So a pool with
-- room gets its jobs soon, however many they are, and a full one requeues few.
create or replace function _local_cap(
  limiter limiters, now timestamptz
) returns bigint language sql stable as $$
  select case when limiter.local_until <= now + interval '2 seconds' then limiter.local_cap::bigint + case
    when now < limiter.local_until then 0
    else power(2, least(_local_steps(limiter, now), 31)) end::bigint end;
$$;

-- How many times `local_delay` has passed since `local_until`.
create or replace function _local_steps(
  limiter limiters, now timestamptz
) returns float8 language sql stable as $$
  select floor(least(extract(epoch from now - limiter.local_until)::float8 / limiter.local_delay, 1e9));
$$;

-- When the cap of _local_cap rises next.
create or replace function _local_rises_at(
  limiter limiters, now timestamptz
) returns timestamptz language sql stable as $$
  select case when now < limiter.local_until then limiter.local_until
    -- a microsecond later than the sum, which is rounded: else passes would look just before it rises
    else limiter.local_until + make_interval(
      secs => (_local_steps(limiter, now) + 1) * limiter.local_delay + 0.000001) end;
$$;

-- For how many seconds no more jobs are admitted, now that a worker pool has requeued one. It is 0.02, and twice as long
-- while such jobs follow each other, up to 1. If a job has ended since the last one, somebody has room now and then. Then it
-- is half as long.
--
-- The limiter has counted the job that came back as released.
create or replace function _next_local_delay(
  limiter limiters, now timestamptz
) returns float8 language sql stable as $$
  select case
    when limiter.local_until + make_interval(secs => 10 * limiter.local_delay) >= now
      and limiter.local_until <= now + interval '2 seconds'
    then case when limiter.released > limiter.local_released + 1 then greatest(limiter.local_delay / 2, 0.02)
      else least(limiter.local_delay * 2, 1) end
    else 0.02 end;
$$;
