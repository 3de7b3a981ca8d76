-- How many seconds an admitted job waits in Graphile Worker for a worker slot. By Little's law it spends as long there as
-- the jobs in flight take to end at their pace. Some of it is its own run. 0 if no pace was measured lately.
create or replace function _start_lag(
  p_policy policies, p_task text, p_now timestamptz
) returns float8 language plpgsql stable as $$
begin
  return coalesce((
    select greatest(l.in_flight / m.pace - coalesce(d.seconds, 0), 0)
    from limiters l
    cross join lateral _worker_slots((p_policy).id) s
    cross join lateral (select min(x.seconds) as seconds from unnest(l.durations) x) f
    cross join lateral (select _pace(l, s.slots, f.seconds, p_now) as pace) m
    left join lateral unnest(l.durations) d on d.task = p_task
    where l.id = (p_policy).ahead_limiter_id and m.pace > 1e-6
      and l.sampled_at between p_now - interval '1 minute' and p_now + interval '1 minute'
    limit 1), 0);
end
$$;
