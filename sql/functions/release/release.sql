-- A release: what becomes of jobs that have ended.

-- Frees the slots of the jobs that ended since a worker process flushed last, in one transaction.
--
--   p_jobs   json array of
--     { "job": Graphile Worker's id,
--     "admission": the owner of the slot (null: whichever),
--     "ok": boolean (null: nobody saw its end, and it counts as neither), "lagMs": number | null,
--     "saysNothing": true if its failure says nothing of the partner,
--     "task": its task identifier,
--     "durationMs": how long it ran; null: not known,
--     "attempt": the attempt that ended (null: whichever has the slot),
--     "ends": true if Graphile Worker is recording its end at this moment,
--     "retry": how it is tried again, see retry; null: it ended, or Graphile Worker retries it,
--     "stagedId": its id in staging, if it succeeded and `uniqueFor` remembers its key,
--     "settled": what its run cost, { "cost": at every throttle, "gates": { gate: at this one } }; null: its estimate }
--     Jobs that share all others may be one object, with "jobs", "lagsMs" and "durationsMs" for the three that differ, and
--     "stagedIds" if they have it: each an array as text, such as '{1,2}'.
--
-- A slot belongs to an admission and an attempt, and a release names both, because others may have the slot by now. If a
-- pool was silent for so long that its job was unlocked, a later attempt has the slot. Then the end of the earlier attempt
-- frees nothing. So it is if the next job of the key was admitted in the row.
--
--   p_passes_on   the slots of a few jobs go to the next ones at once, see _pass_slots_on
--   passed_on    json array of { "policy", "jobs" }: how many went so; null: none
--   left_ids   these come again with the next flush. Graphile Worker has not recorded their failure yet, or their limiters
--     changed meanwhile. Or another transaction has one of these rows locked.
--   may_end   how many jobs may end before the next flush, see _free_slots
--   is_to_tell   a tick loop has to read how these have ended
--   is_recorded   this must be on the disk: a sweep does not find the slot of a job whose start was recorded, as long as the
--     worker pool lives
--
-- A release does not wait for Graphile Worker to record a success. The slot is free, and the ahead bound counts the job
-- until Graphile Worker's table does not have it any more.
--
-- Locks: limiters ascending, Graphile Worker's job rows, in-flight rows. It waits for each only for a moment, so an
-- application's open transaction delays only the jobs it has locked.
create or replace function _release(
  p_jobs json, p_now timestamptz, p_passes_on boolean default false,
  out left_ids bigint[], out may_end int, out is_recorded boolean, out passed_on jsonb, out is_to_tell boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '250ms'
as $$
declare
  v_now timestamptz;
  v_jobs finished_job[];
  v_job_ids bigint[];
  v_limiter_ids bigint[];
  v_settles boolean;
  v_fails boolean;
  v_is_small boolean;   -- they have succeeded, and nothing but their slots is to be looked after
  v_passes_on boolean;
  v_wakes boolean;
  v_ending bigint[] := '{}';
  v_left bigint[] := '{}';
  v_free bigint[];
  v_back record;
  v_turn record;
  v_one record;
  v_ids bigint[];
  v_none text;
begin
  v_none := _check_isolation('a release');
  select coalesce(array_agg(j order by j.job), '{}'), coalesce(array_agg(j.job order by j.job), '{}'),
    bool_or(j.settled is not null), bool_or(j.retries or not j.ok),
    bool_and(j.ok is true and j.settled is null and j.staged_id is null)
  into v_jobs, v_job_ids, v_settles, v_fails, v_is_small from _finished(p_jobs) j;
  v_passes_on := p_passes_on and cardinality(v_job_ids) <= _few()
    and (current_setting('dispatch_policy.server', true) is not distinct from :'DISPATCH_POLICY_SCHEMA' or _meet_server());
  if v_is_small and v_passes_on then
    v_turn := _pass_slots_on(null, null, v_jobs, v_job_ids, p_now);
    if v_turn.left_for is null then
      left_ids := '{}'; is_recorded := v_turn.is_recorded;
      may_end := case when v_turn.leaves then 0 end;
      if v_turn.admitted > 0 then
        passed_on := jsonb_build_array(jsonb_build_object('policy', v_turn.policy, 'jobs', v_turn.admitted));
      end if;
      return;
    elsif v_turn.left_for <> 'ends' then
      v_passes_on := v_turn.left_for = 'shared';   -- perhaps to another policy
      v_none := _left_to_pass(coalesce(v_turn.of_policy, (
          select min(f.policy_id) from in_flight_jobs f where f.job_id = any(v_job_ids))),
        v_turn.left_for, v_turn.message, coalesce(p_now, clock_timestamp()));
    end if;
  end if;
  v_limiter_ids := array(
    select distinct u.id from (
      select distinct f.limiter_ids from in_flight_jobs f
      where f.job_id = any(v_job_ids)
    ) f cross join unnest(f.limiter_ids) u (id));
  if v_settles then
    v_limiter_ids := v_limiter_ids || _throttles_to_settle(v_jobs);
  end if;
  if exists (
    select from policies p
    where p.ahead_limiter_id = any(v_limiter_ids) and coalesce(p.ahead_seconds, p.ahead) is not null) then
    v_ending := _ends_being_recorded(v_jobs);
  end if;
  begin
    if v_settles then
      perform _lock_to_settle(v_limiter_ids);
    else
      perform from limiters l
      where l.id = any(v_limiter_ids) order by l.id for no key update;
    end if;
  exception when lock_not_available or deadlock_detected then
    v_limiter_ids := array(
      select l.id from limiters l
      where l.id = any(v_limiter_ids) order by l.id for no key update skip locked);
    v_left := array(
      select f.job_id from in_flight_jobs f
      where f.job_id = any(v_job_ids) and not f.limiter_ids <@ v_limiter_ids);
    v_jobs := array(select j from unnest(v_jobs) j where j.job <> all (v_left) order by j.job);
    v_job_ids := array(select j.job from unnest(v_jobs) j);
  end;
  v_now := coalesce(p_now, clock_timestamp());
  if v_fails then
    select c.jobs, v_left || c.left_ids into v_jobs, v_left from _end_cancelled(v_jobs) c;
    v_job_ids := array(select j.job from unnest(v_jobs) j);
  end if;
  if v_settles then
    select v_left || s.left_ids, s.woke into v_left, v_wakes
    from _settle(v_jobs, v_limiter_ids, v_now) s;
    v_jobs := array(select j from unnest(v_jobs) j where j.job <> all (v_left) order by j.job);
    v_job_ids := array(select j.job from unnest(v_jobs) j);
  end if;
  if v_fails and exists (select from unnest(v_jobs) j where j.retries) then
    v_jobs := _without_others_ends(v_jobs);
    -- A job that ran twice, because somebody took its attempts off, may fail twice as the same attempt: the last end counts.
    v_left := v_left || _retry(array(
      select distinct on (j.job) j from unnest(v_jobs) j where j.retries order by j.job, j.ordinality desc), v_now);
    v_job_ids := array(select j.job from unnest(v_jobs) j where j.job <> all (v_left));
  end if;
  begin
    v_back := _free_slots(v_jobs, v_job_ids, v_limiter_ids, v_ending, v_now, v_passes_on);
  exception when lock_not_available then
    v_free := array(
      select f.job_id from in_flight_jobs f
      where f.job_id = any(v_job_ids) order by f.job_id for update skip locked);
    v_back := _free_slots(v_jobs, v_free, v_limiter_ids, v_ending, v_now, v_passes_on);
    v_left := v_left || array(
      select f.job_id from in_flight_jobs f
      where f.job_id = any(v_job_ids) and f.job_id <> all (v_free));
  end;
  left_ids := v_left || v_back.left_ids; may_end := v_back.may_end; is_recorded := v_back.is_recorded;
  is_to_tell := v_back.is_to_tell;
  if v_back.to_pass_on <> '{}' then
    for v_one in
      select p.id, p.name, p.ahead_limiter_id, array_agg(l) as limiters, array_agg(l.id) as ids
      from limiters l
      cross join lateral (   -- of a shared one, the policy whose partition is first in line
        select case when not l.shared then l.policy_id else (
          select q.policy_id from partitions q where q.blocked_on = l.id order by q.fair_key, q.due_at limit 1) end as policy_id) w
      join policies p on p.id = w.policy_id
      where l.id = any(v_back.to_pass_on) group by p.id order by p.id
    loop
      v_ids := v_one.ids;   -- without its ahead bound all is left
      -- That of another policy is not in the order of locks. And one that nobody ticks may have no worker.
      if v_one.ahead_limiter_id = any(v_limiter_ids) or (
        exists (select from leases e where e.policy = v_one.name and e.expires_at > clock_timestamp())
        and cardinality(_lock_available_limiters(array[v_one.ahead_limiter_id])) = 0) then
        v_ids := v_ids || v_one.ahead_limiter_id;
      end if;
      v_turn := _pass_slots_on(v_one.id, v_ids, '{}', '{}', p_now);
      if v_turn.left_for is not null then
        perform _announce_freed(v_one.limiters, '{}', v_now);
        perform _left_to_pass(v_one.id, v_turn.left_for, v_turn.message, v_now);
      elsif v_turn.admitted > 0 then
        passed_on := coalesce(passed_on, '[]') || jsonb_build_object('policy', v_one.name, 'jobs', v_turn.admitted);
      end if;
      if v_turn.left_for is not null or v_turn.leaves then
        may_end := 0;
      end if;
    end loop;
  end if;
  if v_wakes then
    may_end := 0;
  end if;
end
$$;

-- The jobs of a release, typed; _release says what each name means. Reading 1,000 objects takes 2.2 ms, and reading one
-- with lists of 1,000 takes 0.4.
create or replace function _finished(p_jobs json)
returns setof finished_job language sql stable as $$
  select coalesce(u.job, s.job), s.task, s.admission, s.ok,
    case when s.jobs is null then s.lag_ms else u.lag_ms end, case when s.jobs is null then s.duration_ms else u.duration_ms end,
    s.attempt, s.ends, json_typeof(s.retry) is not distinct from 'object',
    case when json_typeof(s.retry) = 'object' then json_populate_record(null::retry, s.retry) end,
    (s.ordinality << 32) + coalesce(u.ordinality, 0), s.error, case when s.jobs is null then s.settled end,
    coalesce(u.staged_id, s.staged_id), coalesce(s.says_nothing, false)
  from rows from (json_to_recordset(p_jobs) as (
      job bigint, task text, admission bigint, ok boolean, "lagMs" float8, "durationMs" float8, attempt int, ends boolean,
      retry json, jobs text, "lagsMs" text, "durationsMs" text, error text, settled jsonb,
      "stagedId" bigint, "stagedIds" text, "saysNothing" boolean))
    with ordinality s (
      job, task, admission, ok, lag_ms, duration_ms, attempt, ends, retry, jobs, lags_ms, durations_ms, error, settled,
      staged_id, staged_ids, says_nothing, ordinality)
  left join lateral unnest(s.jobs::bigint[], s.lags_ms::float8[], s.durations_ms::float8[], s.staged_ids::bigint[])
    with ordinality u (job, lag_ms, duration_ms, staged_id, ordinality) on s.jobs is not null;
$$;

-- The jobs whose success Graphile Worker is recording at this moment. _still_ending checks again which of them are left.
create or replace function _ends_being_recorded(p_jobs finished_job[]) returns bigint[] language plpgsql as $$
begin
  return array(
    select f.job from unnest(p_jobs) f
    cross join lateral (   -- one look at the index for each job
      select from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = f.job and j.attempts = f.attempt and j.locked_at is not null limit 1) j
    where f.ok and f.ends);
end
$$;

-- Lets failed jobs end for good that an operator has cancelled, whatever is said of their retry. Their own process may not
-- know yet, or has died, and a sweep releases them. Such a failure says nothing of the partner: else a cancel of a tenant's
-- jobs would open the breaker for those that come next.
--
-- The danger: a cancel marks a row after somebody has looked at it, and before that row is deleted. Then the job would be
-- staged again. The cure: the rows are locked, so that a cancel waits, and finds the staged job.
--
--   left_ids   another transaction has the row locked, so these come again with the next flush
create or replace function _end_cancelled(
  p_jobs finished_job[],
  out jobs finished_job[], out left_ids bigint[]
) language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(array(select j.job from unnest(p_jobs) j where j.retries or not j.ok)));
  v_locked bigint[];
  v_cancelled bigint[];
begin
  select coalesce(array_agg(x.job_id), '{}'), coalesce(array_agg(x.job_id) filter (where x.cancelled_at is not null), '{}')
  into v_locked, v_cancelled
  from (
    select f.job_id, f.cancelled_at from in_flight_jobs f
    where f.job_id = any(v_ids) order by f.job_id for update skip locked
  ) x;
  left_ids := array(select unnest(v_ids) except select unnest(v_locked));
  if v_cancelled = '{}' then
    jobs := array(select j from unnest(p_jobs) j where j.job <> all (left_ids) order by j.job);
    return;
  end if;
  jobs := array(
    select case when j.job = any(v_cancelled) and (j.retries or not j.ok) then
        row(j.job, j.task, j.admission, j.ok, j.lag_ms, j.duration_ms, j.attempt, j.ends, true,
          row(coalesce((j.retry).attempt, nullif(j.attempt, 0), g.attempts), coalesce((j.retry).revision, g.revision), true,
            null, null, null, null, null, null, null, null)::retry,
          j.ordinality, j.error, j.settled, j.staged_id, true)::finished_job
      else j end
    from unnest(p_jobs) j
    left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = j.job and g.id = any(v_cancelled)
    where j.job <> all (left_ids) order by j.job);
end
$$;

-- Reports ends to the router: how a probe ended, failures for a breaker, how long jobs ran. It locks no partition. It leaves
-- an arrival, and the router changes the partition. Returns whether a breaker or a probe waits for it.
--
-- A failure that says nothing of the partner counts as an end that nobody saw: its probe is followed by another one.
create or replace function _report_ends(
  p_gone in_flight_jobs[], p_jobs finished_job[]
) returns boolean language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with reported as (
    insert into arrivals (policy, partition_id, key, outcome)
    select e.policy, e.partition_id, e.key,
      case when e.counts then jsonb_build_object('failures', e.failures, 'probe', e.probe, 'passed', e.passed) else '{}' end
        || case when e.ended > 0
          then jsonb_build_object('ended', e.ended, 'worked', e.worked, 'work', e.worked - e.charged) else '{}' end
    from (
      select x.*, x.probe is not null or (x.failures > 0 and x.breaks) as counts
      from (
        select p.name as policy, p.breaker_failures is not null as breaks, g.partition_id, x.key,
          count(*) filter (where not f.ok and not f.says_nothing) as failures,
          max(g.job_id) filter (where g.job_id = x.probe_job_id) as probe,
          bool_and(f.ok) filter (where g.job_id = x.probe_job_id and not f.says_nothing) as passed,
          count(f.duration_ms) filter (where p.fair_by_work) as ended,
          sum(f.duration_ms) / 1000 as worked, coalesce(sum(g.work) filter (where f.duration_ms is not null), 0) as charged
        from unnest(p_gone) g
        join unnest(p_jobs) f on f.job = g.job_id
          and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
        join partitions x
          on x.id = g.partition_id and x.id = any(array(select y.partition_id from unnest(p_gone) y))
        join policies p on p.id = g.policy_id
        group by p.id, g.partition_id, x.key
      ) x
    ) e
    where e.counts or e.ended > 0
    returning policy, outcome ? 'failures' as counts
  )
  select array_agg(distinct r.policy) into v_policies from reported r where r.counts;
  perform _notify(u.policy) from unnest(v_policies) u (policy);
  return v_policies is not null;
end
$$;

-- Deletes the in-flight rows of these jobs, and frees their slots. It feeds adaptive limiters, and leaves a freed row
-- if a partition waits.
--
-- A row stays for the next flush if the caller has not locked all of its limiters. The job was then admitted again under
-- other limiters. A row stays for another release if a later attempt has the slot, or the next admission in Graphile
-- Worker's row.
--
--   p_ending    jobs whose end Graphile Worker is recording: the ahead bound still counts them
--   left_ids    the jobs that stay
--   may_end     how many jobs of each worker pool may end before the next flush, see _may_end. It is more than 0 only if
--     nobody waits but for the ahead bound. 0: the next flush goes at once. Null: no loop is notified
--   is_recorded   the start of one of these jobs was recorded with its worker pool
--   is_to_tell    as in _release
--   to_pass_on    limiters with a waiter, if p_passes_on: the caller passes them on, and nobody is told of them. Without the ahead
--     bound: those who wait for it go in numbers
--
-- What few policies need is in statements of its own, because each step of a statement costs time, also if it finds nothing.
create or replace function _free_slots(
  p_jobs finished_job[], p_job_ids bigint[], p_limiter_ids bigint[], p_ending bigint[],
  p_now timestamptz, p_passes_on boolean,
  out left_ids bigint[], out may_end int, out is_recorded boolean, out to_pass_on bigint[], out is_to_tell boolean
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 jobs scanned the limiters 1,000 times
declare
  v_is_watched boolean;
  v_reports boolean;
  v_adapts boolean;
  v_ended record;
  v_freed record;
begin
  select coalesce(bool_or(p.watched), false) or exists (select from groups),
    coalesce(bool_or(p.breaker_failures is not null or p.fair_by_work), false) or exists (
      select from partitions q where q.probe_job_id is not null and q.probe_job_id = any(p_job_ids)),
    exists (select from limiters l where l.id = any(p_limiter_ids) and l.current_max is not null)
  into v_is_watched, v_reports, v_adapts from policies p;
  v_ended := _end_slots(p_jobs, p_job_ids, p_limiter_ids, v_is_watched or v_reports or v_adapts, p_now);
  left_ids := v_ended.left_ids; is_recorded := v_ended.is_recorded; to_pass_on := '{}';
  if v_ended.job_ids = '{}' then
    is_to_tell := v_is_watched and _tell_ends('{}', p_jobs, p_now);   -- of jobs whose slots were freed before
    return;
  end if;
  v_freed := _give_back(
    v_ended.limiter_ids, v_ended.slots, v_ended.job_ids, v_ended.policy_ids, p_ending, p_jobs, p_passes_on);
  to_pass_on := v_freed.to_pass_on;
  if cardinality(v_freed.waited) > cardinality(to_pass_on) then
    may_end := _announce_freed(v_freed.waited, to_pass_on, p_now);
  end if;
  is_to_tell := v_is_watched and _tell_ends(v_ended.deleted, p_jobs, p_now);
  if v_adapts then
    perform _adapt_limiters(p_limiter_ids, v_ended.deleted, p_jobs, p_now);
  end if;
  if v_reports and _report_ends(v_ended.deleted, p_jobs) then
    may_end := 0;
  end if;
  if v_ended.cancelled is not null and _end_waits(v_ended.cancelled) then
    may_end := 0;
  end if;
end
$$;
