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
  out left_ids bigint[], out may_end int, out is_recorded boolean, out passed_on jsonb
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
  v_policy_id int;
  v_settles boolean;
  v_fails boolean;
  v_is_small boolean;   -- few jobs have succeeded, all of one policy, and nothing but their slots is to be looked after
  v_passes_on boolean := p_passes_on;
  v_counts_ends boolean;   -- an ahead bound counts jobs that are ending
  v_wakes boolean;
  v_ending bigint[] := '{}';
  v_left bigint[] := '{}';
  v_free bigint[];
  v_back record;
  v_turn record;
  v_one record;
begin
  perform _check_isolation('a release');
  select coalesce(array_agg(j order by j.job), '{}'), coalesce(array_agg(j.job order by j.job), '{}'),
    bool_or(j.settled is not null), bool_or(j.retries or not j.ok),
    bool_and(j.ok is true and j.settled is null and j.staged_id is null)
  into v_jobs, v_job_ids, v_settles, v_fails, v_is_small from _finished(p_jobs) j;
  v_passes_on := p_passes_on and cardinality(v_job_ids) <= _few();
  v_is_small := v_is_small and v_passes_on;
  if v_is_small then
    select array_agg(distinct u.id), case when min(f.policy_id) = max(f.policy_id) then min(f.policy_id) end
    into v_limiter_ids, v_policy_id
    from in_flight_jobs f cross join unnest(f.limiter_ids) u (id) where f.job_id = any(v_job_ids);
    select coalesce(p.ahead_seconds, p.ahead) is not null into v_counts_ends
    from policies p
    where p.id = v_policy_id and p.load_kept_for is null and p.history_kept_for is null and not p.fair_by_work
      and p.breaker_failures is null and p.unique_for is null
      and not exists (select from groups)
      and not exists (select from partitions q where q.probe_job_id = any(v_job_ids))
      -- ends change an adaptive one; and a job that took another's place has limiters of two policies
      and not exists (
        select from limiters l where l.id = any(v_limiter_ids) and (l.current_max is not null or l.policy_id <> p.id));
    v_is_small := found;
    if v_is_small then
      v_turn := _pass_slots_on(
        v_policy_id, v_limiter_ids, v_jobs, case when v_counts_ends then _ends_being_recorded(v_jobs) else '{}' end, p_now);
      if v_turn.left_for is null then
        left_ids := '{}'; is_recorded := v_turn.is_recorded;
        may_end := case when v_turn.leaves then 0 end;
        if v_turn.admitted > 0 then
          passed_on := jsonb_build_array(jsonb_build_object('policy', v_turn.policy, 'jobs', v_turn.admitted));
        end if;
        return;
      end if;
      v_passes_on := false;
      perform _left_to_pass(v_policy_id, v_turn.left_for, v_turn.message, coalesce(p_now, clock_timestamp()));
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
  if v_back.to_pass_on <> '{}' then
    for v_one in
      select p.id, p.name, array_agg(l.id) filter (where l.kind <> 'ahead') as ids, array_agg(l.id) as locked_ids
      from policies p
      join limiters l on l.policy_id = p.id and (l.id = any(v_back.to_pass_on) or l.kind = 'ahead' and l.id = any(v_limiter_ids))
      where p.id in (select x.policy_id from limiters x where x.id = any(v_back.to_pass_on)) group by p.id order by p.id
    loop
      v_turn := _pass_slots_on(v_one.id, v_one.locked_ids, '{}', '{}', p_now);
      if v_turn.left_for is not null then
        insert into freed (policy_id, limiter_id) select v_one.id, u.id from unnest(v_one.ids) u (id);
        perform _notify(v_one.name);
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
