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
    select _ahead_cap_of(limiter, p.ahead, p.ahead_seconds, s.slots, s.alike, p_now)
    from policies p cross join lateral _worker_slots(p.id) s
    where p.id = limiter.policy_id);
end
$$;

-- The bound of _ahead_cap, for worker slots that the caller has counted with _worker_slots.
create or replace function _ahead_cap_of(
  limiter limiters, p_ahead int, p_seconds float8, p_slots int, p_alike boolean, p_now timestamptz
) returns int language plpgsql stable as $$
declare
  v_shortest float8;
  v_duration task_duration;
  v_cap int := coalesce(p_slots, 100);
begin
  if p_seconds is null then
    return coalesce(p_slots, 0) + p_ahead;
  end if;
  foreach v_duration in array limiter.durations loop
    v_shortest := least(v_shortest, v_duration.seconds);
  end loop;
  if (v_shortest <= p_seconds) is not false and limiter.long_waits_until <= p_now then
    v_cap := v_cap + least(round(p_seconds * _pace(limiter, p_slots, v_shortest, p_now)), 1e6)::int;
  end if;
  if limiter.elsewhere_until > p_now or not p_alike then
    v_cap := v_cap + _waiting_elsewhere(limiter.policy_id, p_seconds + 1, p_now);
  end if;
  return v_cap;
end
$$;
