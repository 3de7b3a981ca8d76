-- Sets the cap of _local_cap at these gates of a job that was requeued, and when passes look at their waiters again.
-- The caller has locked the limiters, and has freed the job's slots.
create or replace function _admit_fewer(p_limiter_ids bigint[], p_gates text[], p_now timestamptz)
returns void language sql volatile as $$
  update limiters l set
    local_cap = l.in_flight, local_delay = n.seconds, local_until = p_now + make_interval(secs => n.seconds),
    local_released = l.released, wake_at = least(l.wake_at, p_now + make_interval(secs => n.seconds))
  from (
    select x.id, _next_local_delay(x, p_now) as seconds
    from limiters x where x.id = any(p_limiter_ids)
  ) n
  where l.id = n.id and l.id = any(p_limiter_ids) and l.gate = any(p_gates) and (l.numbers).per_worker;
$$;
