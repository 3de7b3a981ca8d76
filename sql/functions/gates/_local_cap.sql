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
