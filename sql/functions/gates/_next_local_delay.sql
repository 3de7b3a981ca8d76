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
