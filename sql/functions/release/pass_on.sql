-- A release of few jobs admits those that wait for their slots.

-- Passes freed slots on: admits the next jobs of those who wait for these limiters, in the transaction of the release. So the
-- next job needs no routing step and no pass. As in a pass, each limiter calls as many as it has room for, in fair order.
--
-- A release of few jobs frees their slots here as well, so that each limiter is read and written once. Other releases have freed
-- them before, with _free_slots.
--
-- If partitions wait for the ahead bound, the workers have enough to do, and jobs go in numbers, by passes.
--
-- It takes nobody's turn. So all is left to the next pass if that would find work before these: arrivals, which may bring an
-- earlier job or other limits, partitions that are eligible, or those that go before and wait for another of their limiters. So it is
-- with whatever _admit_few does not know. Then nothing of this has happened, and the caller frees the slots with _free_slots, or
-- leaves a freed row for each limiter.
--
-- A limiter that has room still, and for which others wait, gets a freed row here, and its loop is notified. It is also notified
-- if a partition goes on at a time that is known, because loops sleep until the earliest one that they know of.
--
-- The danger: a job that waits for another transaction, or that Graphile Worker refuses, would delay the release and all who
-- wait for its limiters. The cure: it waits for 5 ms, and the next pass meets such a job.
--
--   of_policy    whose limiters they are; null: found by the jobs
--   p_limiter_ids   it locks them, and waits for a moment. Null: those of the jobs
--   p_jobs       the jobs that have succeeded and free their slots here; empty: none does
--   p_job_ids    theirs
--   left_for     why all is left to the next pass, see docs/engine.md; null: it is not. 'ends': somebody else is to hear of these
--     ends, or a limiter is locked, so _free_slots sees to them, and the slots are passed on after it
--   p_now        null: the database clock, read after the locks
--   message      of an error that nobody expects
--   leaves       some partitions are left to the next pass, or wait for a time
--   is_recorded  as in _free_slots
--
-- Locks: limiters ascending, in-flight rows. Partitions, without waiting, and then as _admit_few.
create or replace function _pass_slots_on(
  inout of_policy int, p_limiter_ids bigint[], p_jobs finished_job[], p_job_ids bigint[], p_now timestamptz,
  out policy text, out left_for text, out message text, out admitted int, out leaves boolean, out is_recorded boolean
) language plpgsql set lock_timeout = '250ms' as $$
declare
  v_asked timestamptz := clock_timestamp();
  v_now timestamptz;
  v_policy policies;
  v_limiters limiters[];
  v_limiter limiters;
  v_locked_ids bigint[] := '{}';
  v_are_plain boolean := true;
  v_freed int[];
  v_job finished_job;
  v_row in_flight_jobs;
  v_gone int := 0;
  v_recorded bigint[];   -- Graphile Worker is recording their end
  v_ending bigint[];     -- those of them whose slots were freed here
  v_lags real[] := '{}';
  v_runs real[] := '{}';
  v_line record;
  v_claimed claimed[];
  v_before record;
  v_few record;
  v_full_ids bigint[] := '{}';
  v_left bigint[] := '{}';
  v_is_timed boolean := false;
  v_there record;
  v_denied jsonb := '{}';
  v_waited real[] := '{}';
  v_at int;
  v_id bigint;
  v_context text;
  v_timeout text;
begin
  -- one subtransaction has all of it: what is left must be as it was
  begin
    admitted := 0; leaves := false; is_recorded := false;
    v_limiters := array(
      select l from limiters l
      where l.id = any(coalesce(p_limiter_ids, array(
        select unnest(f.limiter_ids) from in_flight_jobs f where f.job_id = any(p_job_ids))))
      order by l.id for no key update);
    v_timeout := set_config('lock_timeout', '5ms', true);
    v_now := coalesce(p_now, clock_timestamp());
    foreach v_limiter in array v_limiters loop
      v_locked_ids := v_locked_ids || v_limiter.id;
      v_are_plain := v_are_plain and v_limiter.current_max is null;   -- ends change an adaptive one
      continue when v_limiter.shared;
      of_policy := coalesce(of_policy, v_limiter.policy_id);
      v_are_plain := v_are_plain and v_limiter.policy_id = of_policy;   -- a job that took another's place may have those of two
    end loop;
    select p as policy, exists (select from partitions q where q.blocked_on = any(v_locked_ids)) as is_waited,
      exists (
        select from partitions q
        where q.blocked_on = any(v_locked_ids) and q.looked_at < v_now - make_interval(secs => p.half_life)) as are_old,
      exists (select from overrides o where o.policy_id = p.id) as is_overridden,
      v_are_plain and not p.fair_by_work and p.breaker_failures is null and not p.watched and not exists (select from groups)
        and not exists (select from partitions q where q.probe_job_id = any(p_job_ids)) as are_plain,
      case when exists (select from arrivals a where a.policy = p.name) then 'arrivals'
        when (p.ahead_limiter_id = any(v_locked_ids)) is not true then 'locked'   -- with this lock nobody removes the policy meanwhile
        when exists (select from partitions q where q.blocked_on = p.ahead_limiter_id) then 'ahead'
        else _left_for(p, v_now) end as left_for
    into v_there from policies p where p.id = of_policy;
    if p_jobs <> '{}' and v_there.are_plain is not true then
      raise exception 'ends' using errcode = 'DPOUT';
    end if;
    v_policy := v_there.policy;
    policy := v_policy.name;
    if v_there.is_waited and v_there.left_for is not null then
      raise exception '%', v_there.left_for using errcode = 'DPOUT';
    end if;

    v_freed := array_fill(0, array[cardinality(v_limiters)]);
    if p_jobs <> '{}' and coalesce(v_policy.ahead_seconds, v_policy.ahead) is not null then   -- that bound counts them still
      v_recorded := _ends_being_recorded(p_jobs);
    end if;
    foreach v_job in array p_jobs loop
      v_row := _end_slot(v_job.job, v_job.admission, v_job.attempt);
      continue when v_row.job_id is null;
      if v_row.policy_id <> of_policy or not v_row.limiter_ids <@ v_locked_ids
        or v_row.cancelled_at is not null then   -- a newer job may wait for its end
        raise exception 'moved' using errcode = 'DPOUT';
      end if;
      foreach v_id in array v_row.limiter_ids loop
        v_at := array_position(v_locked_ids, v_id);
        v_freed[v_at] := v_freed[v_at] + 1;
      end loop;
      v_gone := v_gone + 1;
      if v_job.job = any(v_recorded) then
        v_ending := v_ending || v_job.job;
      end if;
      v_lags := v_lags || _seconds(v_job.lag_ms);
      v_runs := v_runs || _seconds(v_job.duration_ms);
      is_recorded := is_recorded or v_row.pool_id is not null;
    end loop;
    for v_at in 1..cardinality(v_limiters) loop
      continue when v_freed[v_at] = 0;
      v_limiter := v_limiters[v_at];
      v_limiter.in_flight := v_limiter.in_flight - v_freed[v_at];
      v_limiter.released := v_limiter.released + v_freed[v_at];
      if v_limiter.kind = 'ahead' then
        v_limiter.ending := _still_ending(v_limiter.ending) || v_ending;
        v_limiter.durations := case when cardinality(p_jobs) = 1 and cardinality(v_limiter.durations) = 1
            and v_job.task = (v_limiter.durations[1]).task then
            case when v_job.duration_ms >= 0 then array[_duration_after(
              v_job.task, (v_limiter.durations[1]).seconds, v_job.duration_ms / 1000, 1)] else v_limiter.durations end
          else _durations_after(of_policy, v_limiter.durations, p_jobs) end;
      end if;
      v_limiters[v_at] := v_limiter;
    end loop;

    if v_there.is_waited and v_policy.shared_ids <> '{}' then
      foreach v_limiter in array v_limiters loop
        if v_limiter.shared and _is_of_others(v_policy, v_limiter, v_now) then
          raise exception 'shared' using errcode = 'DPOUT';
        end if;
      end loop;
    end if;
    if v_there.is_waited then
      if v_there.are_old then
        perform _refresh_keys(v_policy, v_locked_ids, null, v_now);
      end if;
      v_line := _next_in_line(
        v_policy, null, v_limiters, v_policy.ahead_limiter_id, v_there.is_overridden, true, _few() + 1, v_now);
      v_claimed := v_line.called;
      v_full_ids := v_line.full_ids;
    end if;
    if cardinality(v_claimed) > 0 then
      v_before := _goes_before(v_policy, v_claimed, v_locked_ids, v_now);
      left_for := case when cardinality(v_claimed) > _few() then 'many' else v_before.left_for end;
      if left_for is not null then
        raise exception '%', left_for using errcode = 'DPOUT';
      end if;
      if v_before.is_late then
        perform _promote(array(select c.id from unnest(v_claimed) c), v_now);
        v_claimed := array(   -- their heads are others now
          select _as_claimed(q, c.first_jobs) from unnest(v_claimed) c join partitions q on q.id = c.id);
      end if;
      v_few := _admit_few(v_policy, v_claimed, v_limiters, v_gone, null, true, v_now);
      admitted := v_few.admitted; v_denied := v_few.denied; v_waited := v_few.waits;
      v_full_ids := v_full_ids || v_few.full_ids;
      v_is_timed := v_few.is_timed;
    elsif v_gone > 0 then
      perform _write_limiters(v_locked_ids, v_limiters, null, null, cardinality(v_limiters), false, v_now);
    end if;
    if v_gone > 0 or cardinality(v_claimed) > 0 then
      insert into activity (policy_id, at, succeeded, failed, lags, runs, passes, pass_seconds, admitted, denied, waits)
      values (of_policy, v_now, v_gone, 0, v_lags, v_runs, 0, 0, admitted, v_denied, v_waited);
    end if;

    if v_there.is_waited then
      -- what is left may be for others: those behind one that had no room elsewhere, or that others have locked
      foreach v_id in array v_locked_ids loop
        continue when v_id = any(v_full_ids) or v_id = v_policy.ahead_limiter_id;
        if exists (select from partitions q where q.blocked_on = v_id) then
          v_left := v_left || v_id;
        end if;
      end loop;
      if v_left <> '{}' then
        insert into freed (policy_id, limiter_id) select of_policy, u.id from unnest(v_left) u (id);
      end if;
      if v_left <> '{}' or v_is_timed then
        leaves := true;
        perform _notify(v_policy.name);
      end if;
      leaves := leaves or admitted = 0;   -- who was looked at waits for the next end
    end if;
  exception
    when lock_not_available or deadlock_detected or query_canceled then
      if not _is_lock_timeout(sqlstate, v_asked) then
        raise;
      end if;
      -- one locked limiter keeps nobody's slots at the others
      left_for := case when p_limiter_ids is null and v_limiters is null then 'ends' else 'locked' end;
    when sqlstate 'DPOUT' then left_for := sqlerrm;
    when others then
      get stacked diagnostics message = message_text, v_context = pg_exception_context;
      left_for := _left_for_error(sqlstate, v_context);
  end;
end
$$;

-- Why a pass must decide before these partitions get slots: others of their shards are eligible now, or wait for another of
-- their limiters and go before them, by their fair keys or because it is the turn of who has been in line for longest. Or a
-- job of them has expired. Null: none of it.
create or replace function _goes_before(
  p_policy policies, p_claimed claimed[], p_limiter_ids bigint[], p_now timestamptz, out left_for text, out is_late boolean
) language plpgsql stable as $$
declare
  v_line claimed;
  v_shards text[] := '{}';
  v_ids uuid[] := '{}';
  v_others bigint[] := '{}';
  v_there record;
begin
  foreach v_line in array p_claimed loop
    v_ids := v_ids || v_line.id;
    v_others := v_others || v_line.limiter_ids;
    v_shards := case when v_line.shard = any(v_shards) then v_shards else v_shards || v_line.shard end;
  end loop;
  select
    exists (
      select from partitions e
      where e.policy_id = (p_policy).id and e.shard = any(v_shards) and e.ready and e.eligible_at <= p_now)
    or exists (
      select from partitions e
      where e.policy_id = (p_policy).id and e.shard = any(v_shards) and not e.ready and e.eligible_at < 'infinity'
        and e.eligible_at <= p_now) as eligible,
    exists (select from staged_jobs s where s.partition_id = any(v_ids) and s.expires_at <= p_now) as expired,
    exists (
      select from staged_jobs s
      where s.partition_id = any(v_ids) and not s.due and coalesce(s.retry_at, s.run_at) <= p_now) as late,
    exists (select from partitions w where w.blocked_on = any(v_others) and w.blocked_on <> all (p_limiter_ids)) as waiting
  into v_there;
  is_late := v_there.late;
  left_for := case when v_there.eligible then 'eligible' when v_there.expired then 'expired' end;
  if left_for is null and v_there.waiting then
    left_for := (
      select 'waiting' from unnest(p_claimed) c
      join partitions q on q.id = c.id
      cross join unnest(c.limiter_ids) u (id)
      where u.id <> all (p_limiter_ids) and (
        exists (select from partitions w where w.blocked_on = u.id and w.fair_key < q.fair_key)
        or exists (
          select from partitions w join limiters l on l.id = w.blocked_on
          where w.blocked_on = u.id and w.in_line_since <= _long_since(p_now)
            and _longest_first(p_policy, l.admitted, 1) > 0)
        or exists (
          select from limiters l
          cross join unnest(_class_places((p_policy).class_shares, l.admitted, 1)) with ordinality k (places, class)
          join partitions w on w.blocked_on = l.id
            and w.fair_key >= _class_from(k.class::int) and w.fair_key < _class_from(k.class::int + 1)
          where l.id = u.id and k.places > 0)) limit 1);
  end if;
end
$$;
