-- How many jobs of a policy may be in flight: one for each worker slot, and the jobs ahead. So workers never wait for a
-- tick. Null: no bound.
--
-- A fixed number of jobs ahead makes others wait. For ten worker slots, 100 jobs of a second were ten seconds of work,
-- and a new tenant's first job waited behind them. So by default as many are ahead as the workers finish in a certain
-- time.
--
-- Worker slots do not become free evenly. After the first one, the next may take as long as a job runs. So if jobs run
-- for longer than that time, none is ahead. Compared with such a job, the wait for a tick is short.
--
-- Some jobs wait in Graphile Worker for something else than a worker slot. They need their named queue, a worker that
-- accepts their flags, or one that has their task. They would keep all other jobs out. So if a policy may have such jobs,
-- they are counted, and as many others go beside them.
--
-- None is ahead while a job of a long task waits for a slot, see _stop_at_long_jobs.
create or replace function _ahead_cap(
  limiter limiters, p_now timestamptz
) returns int language plpgsql stable as $$
begin
  return (
    select case
      when p.ahead_seconds is null then coalesce(s.slots, 0) + p.ahead
      else s.assumed
        + case when (d.seconds <= p.ahead_seconds) is not false and limiter.long_waits_until <= p_now
          then least(round(p.ahead_seconds * _pace(limiter, s.slots, d.seconds, p_now)), 1e6)::int
          else 0 end
        + case when limiter.elsewhere_until > p_now or not s.alike
          then _waiting_elsewhere(p.id, p.ahead_seconds + 1, p_now) else 0 end
    end
    from policies p
    cross join lateral _worker_slots(p.id) s
    cross join lateral (select min(d.seconds) as seconds from unnest(limiter.durations) d) d
    where p.id = limiter.policy_id);
end
$$;
