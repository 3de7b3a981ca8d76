-- What ends give back to limiters, and who hears of it.

-- Settles jobs at one throttle, which the caller has locked. Returns whether somebody waits for tokens that came back.
--
-- A bucket gets no more back than it can have, and its debt has an end (_lowest_tokens). It refunds nothing that was
-- spent before its `per`, or before it fills if that takes longer: by now it has gained that anew. A window gets a return
-- back at the time of the spending, and a charge counts from now on. A shadow gate stops at empty, as it does for a pass.
--
-- A return leaves a freed row if a partition waits. The router then works out who may go, and when the others are looked at.
create or replace function _settle_throttle(
  p_policy_id int, p_limiter_id bigint, p_settlements settlement[], p_now timestamptz
) returns boolean language plpgsql volatile as $$   -- planned as _release
declare
  v_limiter room_before := (
    select n from _rooms_of(array[p_limiter_id], p_now, false) n);
  v_own_rate float8 := (select (l.numbers).rate from limiters l where l.id = p_limiter_id);
  v_is_shadow boolean := v_limiter.shadow_tokens is not null;
  v_tokens float8 := coalesce(v_limiter.tokens, v_limiter.shadow_tokens);
  v_spent spending[] := v_limiter.spent;
  v_charge float8;
  v_return record;
  v_at timestamptz;
  v_then float8;
begin
  if v_spent is null then
    v_charge := (
      select coalesce(sum(s.difference), 0) from unnest(p_settlements) s
      where s.difference > 0 or s.since > p_now - make_interval(secs => least(
        v_limiter.per * greatest(v_limiter.capacity / nullif(greatest(v_limiter.rate, 0), 0), 1), 1e9)));
    v_then := case when v_charge > 0 then least(v_tokens, greatest(v_tokens - v_charge, case when v_is_shadow then 0
        else _lowest_tokens(v_limiter.rate, v_own_rate) end))
      else greatest(v_tokens, least(v_tokens - v_charge, v_limiter.capacity)) end;
  else
    for v_return in select s.since, -s.difference as cost from unnest(p_settlements) s where s.difference < 0 loop
      -- It comes off the entry that has the spending: the first one from that time on. So it counts as if it had never been
      -- spent, and if the window has forgotten the spending, there is nothing to return.
      v_at := (select min(s.at) from unnest(v_spent) s where s.at >= v_return.since);
      v_spent := array(
        select row(s.at, case when s.at = v_at then greatest(s.cost - v_return.cost, 0) else s.cost end)::spending
        from unnest(v_spent) s order by s.at);
    end loop;
    v_then := v_limiter.capacity - _window_spent(v_spent, v_limiter.window_seconds, p_now);
    v_charge := (select coalesce(sum(s.difference), 0) from unnest(p_settlements) s where s.difference > 0);
    if v_is_shadow then
      v_charge := least(v_charge, greatest(v_then, 0));
    end if;
    if v_charge > 0 then
      v_spent := _window_spend(
        v_spent, v_limiter.window_seconds, v_limiter.remembered, v_charge, p_now);
      v_then := v_then - v_charge;
    end if;
  end if;
  perform _set_tokens(p_limiter_id, v_then, v_spent, p_now);
  if v_then <= v_tokens or not exists (
    select from partitions q where q.blocked_on = p_limiter_id) then
    return false;
  end if;
  insert into freed (policy_id, limiter_id) values (p_policy_id, p_limiter_id);
  perform _notify(p.name) from policies p where p.id = p_policy_id;
  return true;
end
$$;

-- Feeds the ends of released jobs to those of these limiters that adapt, in the order in which they ended. The caller has
-- locked the limiters and subtracted the jobs (`p_gone`) from their counts. A cap that changes is appended to the activity.
create or replace function _adapt_limiters(
  p_limiter_ids bigint[], p_gone in_flight_jobs[],
  p_jobs finished_job[], p_now timestamptz
) returns void language plpgsql volatile as $$   -- planned as _free_slots
declare
  -- mostly there are none, and then no limiter needs a look-up
  v_overridden boolean := exists (select from overrides);
begin
  with adaptive as materialized (
    select l.id, l.in_flight,
      case when v_overridden then jsonb_populate_record(l, jsonb_build_object('numbers', coalesce((
          select o.set from overrides o
          where o.id = _override_id_at(l.policy_id, l.gate, l.scope_key, _context_of(l), p_now, p_now)), '{}')))
        else l end as limiter
    from limiters l
    where l.id = any(p_limiter_ids) and l.current_max is not null
  ),
  gone as materialized (
    select a.id, g.job_id, g.admission, g.attempt, g.admitted_at, count(*) over (partition by a.id) as jobs
    from unnest(p_gone) g
    cross join unnest(g.limiter_ids) u (id)
    join adaptive a on a.id = u.id
  ),
  adapted as materialized (
    select a.id, _adaptive_fold(
      a.limiter, f.lag_ms, f.ok, g.admitted_at, a.in_flight + g.jobs::int, p_now order by f.ordinality) as state
    from gone g
    join adaptive a on a.id = g.id
    join unnest(p_jobs) f on f.job = g.job_id and f.ok is not null
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
      and not f.says_nothing
    group by a.id
  ),
  changed as (
    insert into activity (policy_id, at, caps)
    select (a.state).policy_id, p_now, jsonb_agg(jsonb_build_object(
      'gate', (a.state).gate, 'key', (a.state).scope_key, 'cap', (a.state).current_max))
    from adapted a join adaptive b on b.id = a.id
    where (a.state).current_max is distinct from (b.limiter).current_max
    group by (a.state).policy_id
  )
  update limiters l set
    current_max = (a.state).current_max, lag_ewma_ms = (a.state).lag_ewma_ms, decreased_at = (a.state).decreased_at
  from adapted a where l.id = a.id and l.id = any(p_limiter_ids);
end
$$;

-- Tells the policies whose partitions are among the first in the line of a shared limiter (`p_places`), or have waited there for
-- longest: each gets a freed row, and is notified. So do those behind the ones that do not come. The caller has locked the
-- limiter. Returns whether one of them will come that is not `p_but`. One that was told keeps its row until it comes.
create or replace function _tell_in_line(p_limiter limiters, p_but int, p_places int, p_now timestamptz) returns boolean
language plpgsql as $$
declare
  v_absent int[] := _absent_from(p_limiter, p_now);
  v_told int[];
  v_cap int := (_room_for_few(p_limiter, true, true, null, p_now)).cap;   -- who takes more is passed by
  v_ids int[] := array(
    select distinct x.policy_id from (
      (select q.policy_id from partitions q
        where q.blocked_on = p_limiter.id and _fits(q.limiter_ids, p_limiter.id, v_cap)
        order by q.fair_key, q.due_at limit p_places)
      union all
      (select q.policy_id from partitions q
        where q.blocked_on = p_limiter.id and q.in_line_since <= _long_since(p_now)
          and _fits(q.limiter_ids, p_limiter.id, v_cap)
        order by q.in_line_since limit (p_places + 9) / 10)
      union all
      (select q.policy_id from partitions q
        where v_absent <> '{}' and q.blocked_on = p_limiter.id and q.policy_id <> all (v_absent)
          and _fits(q.limiter_ids, p_limiter.id, v_cap)
        order by q.fair_key, q.due_at limit p_places)
    ) x
    where x.policy_id is distinct from p_but);
begin
  if p_but is null and v_ids <@ v_absent then   -- whoever else shares it may stand behind them
    v_ids := v_ids || array(
      select p.id from policies p where p.shared_ids @> array[p_limiter.policy_id] and p.id <> all (v_absent));
  end if;
  with told as (
    insert into freed (policy_id, limiter_id, at)
    select u.id, p_limiter.id, least(p_now, clock_timestamp()) from unnest(v_ids) u (id)
    where not exists (select from freed f where f.policy_id = u.id and f.limiter_id = p_limiter.id)
    returning policy_id
  )
  select array_agg(t.policy_id) into v_told from told t;
  perform _notify(p.name) from policies p where p.id = any(v_told);
  return not v_ids <@ v_absent;
end
$$;

-- The policies that leave their places at a shared limiter: they are paused or switched off, or have been told for a second that
-- it has room, and have not looked. Nobody ticks them, or their passes are far behind. A tick whose `now` is ahead goes by the
-- clock here, as those who were told do.
create or replace function _absent_from(p_limiter limiters, p_now timestamptz) returns int[] language plpgsql stable as $$
begin
  return array(
    select p.id from policies p
    where p.shared_ids @> array[p_limiter.policy_id] and (not p.enabled or p.paused_until > p_now or exists (
      select from freed f
      where f.policy_id = p.id and f.limiter_id = p_limiter.id
        and f.at < least(p_now, clock_timestamp()) - interval '1 second')));
end
$$;

-- Leaves a freed row for each of these limiters, and notifies their policies. Somebody waits for each of them. Those that the
-- caller passes on are left out.
--
-- Returns how many jobs of each worker pool may end before the next flush, see _free_slots.
create or replace function _announce_freed(
  p_waited limiters[], p_to_pass_on bigint[], p_now timestamptz
) returns int language plpgsql volatile as $$   -- planned as _free_slots
declare
  v_policy_ids int[];
  v_limiter limiters;
  v_is_shared boolean := false;
begin
  foreach v_limiter in array p_waited loop
    continue when not v_limiter.shared or v_limiter.id = any(p_to_pass_on);
    v_is_shared := true;
    perform _tell_in_line(v_limiter, null, _few() + 1, p_now);
    perform _look_at_waiters(v_limiter.id, least(v_limiter.wake_at, p_now + interval '1 second'), v_limiter.fewest_pools);
  end loop;
  with announced as (
    insert into freed (policy_id, limiter_id)
    select w.policy_id, w.id from unnest(p_waited) w
    where not w.shared and (w.id in (select unnest(p_to_pass_on))) is not true
    returning policy_id
  )
  select array_agg(distinct a.policy_id) into v_policy_ids from announced a;
  perform _notify(p.name) from policies p
  where p.id = any(v_policy_ids);
  return case when v_is_shared then 0 else (
    select min(case when w.kind = 'ahead' then _may_end(w, p_now) else 0 end)
    from unnest(p_waited) w where w.policy_id = any(v_policy_ids)) end;
end
$$;

-- How many jobs of each worker pool may end before a release and a pass must bring more: half of those that wait for a worker
-- slot. A time would not do, because the pace is a mean that counts the moments without jobs. `ahead` is the policy's ahead
-- bound.
--
-- 0: more must come at once, because less waits than they finish in 0.15 s, or because a job of a long task waits for a slot and
-- the next pass brings no more.
create or replace function _may_end(
  ahead limiters, p_now timestamptz
) returns int language plpgsql stable as $$
begin
  return (
    select case
      when p.pace > 0 and ahead.in_flight - s.assumed >= p.pace * 0.15 and ahead.long_waits_until <= p_now
      then greatest((ahead.in_flight - s.assumed) / 2 / greatest(s.pools, 1), 1) else 0 end
    from _worker_slots(ahead.policy_id) s
    cross join lateral (select min(d.seconds) as seconds from unnest(ahead.durations) d) d
    cross join lateral (select _pace(ahead, s.slots, d.seconds, p_now) as pace) p);
end
$$;

-- How long a policy's tasks run, after these jobs ended: a moving mean for each task, of about the last fifty jobs. Failed
-- jobs change nothing: while a partner is away, the jobs of a long task may fail at once.
create or replace function _durations_after(
  p_policy_id int, p_durations task_duration[],
  p_jobs finished_job[]
) returns task_duration[] language plpgsql stable as $$   -- planned as _free_slots
begin
  return array(
    select _duration_after(t.task_identifier, d.seconds, e.seconds, e.jobs)
    from policy_tasks t
    left join unnest(p_durations) d on d.task = t.task_identifier
    left join (
      select j.task, avg(j.duration_ms) / 1000 as seconds, count(*) as jobs
      from unnest(p_jobs) j where j.ok and j.duration_ms >= 0 group by j.task
    ) e on e.task = t.task_identifier
    where t.policy_id = p_policy_id and coalesce(d.seconds, e.seconds) is not null
    order by t.task_identifier);
end
$$;

-- One of them, after so many jobs ended that took so many seconds on average. It is an expression, so that PostgreSQL inlines it.
create or replace function _duration_after(task text, before float8, mean float8, jobs bigint)
returns task_duration language sql immutable as $$
  select row(task, coalesce(before + (mean - before) * (1 - power(0.98, jobs)), before, mean))::task_duration;
$$;

-- Sets the cap of _local_cap at these gates of a job that was requeued, and when passes look at their waiters again.
-- The caller has locked the limiters, and has freed the job's slots.
--
-- No more are admitted for 0.02 seconds, and for twice as long while such jobs follow each other, up to 1. If a job has
-- ended since the last one, somebody has room now and then. Then it is half as long.
create or replace function _admit_fewer(p_limiter_ids bigint[], p_gates text[], p_now timestamptz)
returns void language sql volatile as $$
  update limiters l set
    local_cap = l.in_flight, local_delay = n.seconds, local_until = p_now + make_interval(secs => n.seconds),
    local_released = l.released, wake_at = least(l.wake_at, p_now + make_interval(secs => n.seconds))
  from (
    select x.id, case
        when x.local_until + make_interval(secs => 10 * x.local_delay) >= p_now
          and x.local_until <= p_now + interval '2 seconds'
        then case when x.released > x.local_released + 1   -- the job that came back was counted
          then greatest(x.local_delay / 2, 0.02) else least(x.local_delay * 2, 1) end
        else 0.02 end as seconds
    from limiters x where x.id = any(p_limiter_ids)
  ) n
  where l.id = n.id and l.id = any(p_limiter_ids) and l.gate = any(p_gates) and (l.numbers).per_worker;
$$;

-- The limiters that go by worker pools at which somebody was denied while fewer pools lived than now.
--
-- Their room grows without a release, and a heartbeat waits for no lock. So a denial leaves the number of pools that it went
-- by, under the limiter's lock, and passes compare it. Of other policies there is none to look for.
create or replace function _with_new_shares(p_policy_id int, p_most int) returns bigint[]
language plpgsql stable as $$
begin
  if not exists (
    select from limiters l
    where l.policy_id = p_policy_id and l.fewest_pools is not null
  ) then
    return '{}';
  end if;
  return array(
    select l.id from limiters l
    where l.policy_id = p_policy_id and l.fewest_pools < _live_pools(p_policy_id)
      and _goes_by_pools(l.kind, l.numbers)
    limit p_most);
end
$$;

-- Counts jobs in flight at limiters that the caller has locked: those with a negative number less.
create or replace function _count_slots(p_ids bigint[], p_jobs int[]) returns void language plpgsql as $$
begin
  update limiters l set in_flight = l.in_flight + n.jobs from unnest(p_ids, p_jobs) n (id, jobs) where l.id = n.id;
end
$$;

-- Slots of these limiters, which the caller has locked, are free: of so many jobs each (`p_slots`).
--
--   p_job_ids, p_policy_ids   the jobs that have ended; those of p_ending are still being recorded by Graphile Worker
--   waited       those for which a partition waits
--   to_pass_on   see _free_slots
create or replace function _give_back(
  p_ids bigint[], p_slots int[], p_job_ids bigint[], p_policy_ids int[], p_ending bigint[], p_jobs finished_job[],
  p_passes_on boolean, out waited limiters[], out to_pass_on bigint[]
) language plpgsql as $$   -- planned as _free_slots
begin
  with freed as (
    update limiters l set
      in_flight = l.in_flight - n.jobs,
      released = l.released + n.jobs,
      ending = case when l.kind = 'ahead' then _still_ending(l.ending) || array(
        select g.id from unnest(p_job_ids, p_policy_ids) g (id, policy_id)
        where g.policy_id = l.policy_id and g.id = any(p_ending)) else l.ending end,
      durations = case when l.kind = 'ahead'
        then _durations_after(l.policy_id, l.durations, p_jobs) else l.durations end
    from unnest(p_ids, p_slots) n (id, jobs)
    where l.id = n.id and l.id = any(p_ids)
    returning l as limiter, l.id, p_passes_on and l.kind <> 'ahead' as passes_on,
      -- a look at the index for each limiter: "exists" was hashed or joined with all that wait (33 ms at 100,000)
      (select true from partitions q where q.blocked_on = l.id limit 1) is true as waited
  )
  select array(select f.limiter from freed f where f.waited), array(select f.id from freed f where f.waited and f.passes_on)
  into waited, to_pass_on;
end
$$;
