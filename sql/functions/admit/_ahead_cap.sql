-- How many jobs of a policy may be in flight so that workers never wait for a tick: their slots, and the jobs ahead. Null:
-- no bound.
--
-- By count alone, 100 jobs of a second were ten seconds of work for ten slots, and a new tenant's first job waited behind
-- them. So by default the jobs ahead are those that the workers finish in a certain time.
--
-- Slots do not come free evenly: after the first one the next may take as long as a job runs. So none is ahead of jobs that
-- run for longer than that time. A slot that waits for a tick is no great loss to them.
--
-- Jobs that wait in Graphile Worker for their named queue, for a worker that takes their flags, or for one that has their
-- task use no slot meanwhile. They would keep all others out. So if a policy may have such jobs, they are counted, and as
-- many others go beside them. A fixed number of jobs ahead made new tenants wait behind 100 jobs of any length.
--
-- None is ahead while a job of a long task waits for a slot, see _stop_at_long_jobs.
create or replace function :DISPATCH_POLICY_SCHEMA._ahead_cap(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns int language sql stable as $$
  select case
    when p.ahead_seconds is null then coalesce(s.slots, 0) + p.ahead
    else s.assumed
      + case when (d.seconds <= p.ahead_seconds) is not false and limiter.long_waits_until <= p_now
        then least(round(p.ahead_seconds * :DISPATCH_POLICY_SCHEMA._pace(limiter, s.slots, p_now)), 1e6)::int else 0 end
      + case when limiter.elsewhere_until > p_now or not s.alike
        then :DISPATCH_POLICY_SCHEMA._waiting_elsewhere(p.id, p.ahead_seconds + 1, p_now) else 0 end
  end
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  cross join lateral :DISPATCH_POLICY_SCHEMA._worker_slots(p.id) s
  cross join lateral (select min(d.seconds) as seconds from unnest(limiter.durations) d) d
  where p.id = limiter.policy_id;
$$;
