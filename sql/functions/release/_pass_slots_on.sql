-- Passes freed slots on: admits the next jobs of those who wait for these limiters, in the transaction of the release. So the
-- next job needs no routing step and no pass. As in _wake, each limiter calls as many as it has room for, in fair order.
--
-- If partitions wait for the ahead bound, the workers have enough to do, and jobs go in numbers, by passes.
--
-- It takes nobody's turn. So all is left to the next pass if that would find work before these: arrivals, which may bring an
-- earlier job or other limits, partitions that are eligible, or those that wait for another limiter that has room. So it is
-- with whatever _admit_few does not know.
--
-- The limiters that are left get a freed row, and their loop is notified. It is also notified if a partition goes on at a time
-- that is known, because loops sleep until the earliest one that they know of.
--
-- The danger: a job that waits for another transaction, or that Graphile Worker refuses, would delay the release and all who
-- wait for its limiters. The cure: it waits for 5 ms, and the next pass meets such a job.
--
--   p_limiter_ids   limiters that partitions wait for
--   p_locked    all limiters that the caller has locked: these are among them
--   p_now       null: the database clock, read after the locks
--   passed_on   json array of { "policy", "jobs" }: how many went; null: none
--   leaves      some partitions are left to the next pass, or wait for a time
--
-- Locks: partitions, without waiting, and then as _admit_few.
create or replace function _pass_slots_on(
  p_limiter_ids bigint[], p_locked bigint[], p_now timestamptz, out passed_on jsonb, out leaves boolean
) language plpgsql set lock_timeout = '5ms' as $$
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_one record;
  v_limiter_id bigint;
  v_room room_before;
  v_places int;
  v_longest int;
  v_late uuid[];
  v_asked timestamptz;
  v_is_late boolean := false;
  v_ids uuid[];
  v_first uuid[];
  v_left bigint[];
  v_full_ids bigint[];
  v_admitted int;
  v_is_timed boolean;
  v_left_for text;
  v_message text;
  v_place text;
begin
  leaves := false;
  for v_one in
    select p as policy, array_agg(l order by l.id) as limiters, array_agg(l.id) as ids,
      case when exists (select from arrivals a where a.policy = p.name) then 'arrivals'
        when p.ahead_limiter_id <> all (p_locked) then 'locked'   -- with this lock nobody removes the policy meanwhile
        when exists (select from partitions q where q.blocked_on = p.ahead_limiter_id) then 'ahead'
        else _left_for(p, v_now) end as left_for
    from limiters l join policies p on p.id = l.policy_id
    where l.id = any(p_limiter_ids) group by p.id
  loop
    v_left_for := v_one.left_for;
    v_left := '{}'; v_full_ids := '{}'; v_admitted := 0; v_is_timed := false;
    if v_left_for is null then
      if v_is_late then
        perform set_config('lock_timeout', '5ms', true);
      end if;
      v_asked := clock_timestamp();
      begin
        v_ids := '{}'; v_first := '{}';
        perform _refresh_keys(v_one.policy, v_one.ids, null, v_now);
        foreach v_room in array _limiters_of_pass((v_one.policy).id, v_one.limiters, v_now, true) loop
          v_places := _room_for_waiters(v_room, false);
          if v_places = 0 then
            v_full_ids := v_full_ids || v_room.id;
            continue;
          end if;
          v_longest := least(v_places, _longest_first(v_one.policy, v_room.admitted, v_places));
          if v_longest > 0 then
            v_late := array(
              select q.id from partitions q
              where q.blocked_on = v_room.id and q.in_line_since <= _long_since(v_now) order by q.in_line_since
              limit v_longest for no key update skip locked);
            v_first := v_first || v_late;
            v_ids := v_ids || v_late;
            v_places := v_places - cardinality(v_late);
          end if;
          v_ids := v_ids || array(
            select q.id from partitions q
            where q.blocked_on = v_room.id and q.id <> all (v_first) order by q.fair_key, q.due_at limit least(v_places, 9)
            for no key update skip locked);
        end loop;
        if v_ids <> '{}' then
          v_left_for := case when cardinality(v_ids) > 8 then 'many'
            else _goes_before(v_one.policy, v_ids, v_one.ids, v_now) end;
          if v_left_for is not null then
            raise exception '%', v_left_for using errcode = 'DPOUT';
          end if;
          perform _promote(v_ids, v_now);
          select f.admitted, v_full_ids || f.full_ids, f.is_timed into v_admitted, v_full_ids, v_is_timed
          from _admit_few(v_one.policy, _claimed(v_ids, v_first), v_now, true, null) f;
        end if;
        -- what is left may be for others: those behind one that had no room elsewhere, or that others have locked
        foreach v_limiter_id in array v_one.ids loop
          if v_limiter_id <> all (v_full_ids)
            and (select true from partitions q where q.blocked_on = v_limiter_id limit 1) is true then
            v_left := v_left || v_limiter_id;
          end if;
        end loop;
      exception
        when lock_not_available or deadlock_detected then v_left_for := 'locked';
        when query_canceled then
          if not _is_lock_timeout(sqlstate, v_asked) then
            raise;
          end if;
          v_left_for := 'locked';
        when sqlstate 'DPOUT' then v_left_for := sqlerrm;
        when others then
          get stacked diagnostics v_message = message_text, v_place = pg_exception_context;
          v_left_for := case when v_place like '%.add_jobs(%' then 'refused'
            else 'failed: ' || sqlstate || ' in ' || coalesce(array_to_string(regexp_match(v_place, '(\w+)\([^)]*\) (line \d+)'), ' '), '') end;
      end;
    end if;
    if v_left_for is not null or v_left <> '{}' then
      perform set_config('lock_timeout', '250ms', true);   -- as _release: an error from here on would stop it
      v_is_late := true;
    end if;
    if v_left_for is not null then
      v_left := v_one.ids;
      insert into activity (policy_id, at, left_to_pass)
      values ((v_one.policy).id, v_now, jsonb_build_object(v_left_for, 1));
      if v_left_for like 'failed: %' then
        passed_on := coalesce(passed_on, '[]') || jsonb_build_object(
          'policy', (v_one.policy).name, 'jobs', 0, 'failed', substr(v_left_for, 9) || ': ' || v_message);
      end if;
    elsif v_admitted > 0 then
      passed_on := coalesce(passed_on, '[]') || jsonb_build_object('policy', (v_one.policy).name, 'jobs', v_admitted);
    end if;
    if v_left <> '{}' then
      insert into freed (policy_id, limiter_id) select (v_one.policy).id, u.id from unnest(v_left) u (id);
    end if;
    if v_left <> '{}' or v_left_for is null and v_is_timed then
      leaves := true;
      perform _notify((v_one.policy).name);
    elsif v_admitted = 0 then
      leaves := true;   -- who was looked at waits for the next end
    end if;
  end loop;
end
$$;

-- Why a pass must decide before these partitions get slots: others of their shards are eligible now, or wait for another of
-- their limiters and go before them, by their fair keys or because it is the turn of who has been in line for longest. Or a
-- job of them has expired. Null: none of it.
create or replace function _goes_before(
  p_policy policies, p_partition_ids uuid[], p_limiter_ids bigint[], p_now timestamptz
) returns text language plpgsql stable as $$
begin
  return (
    select case
      when bool_or(
        exists (
          select from partitions e
          where e.policy_id = (p_policy).id and e.shard = q.shard and e.ready and e.eligible_at <= p_now)
        or exists (
          select from partitions e
          where e.policy_id = (p_policy).id and e.shard = q.shard and not e.ready and e.eligible_at < 'infinity'
            and e.eligible_at <= p_now)) then 'eligible'
      when bool_or(exists (
        select from staged_jobs s where s.partition_id = q.id and s.expires_at <= p_now)) then 'expired'
      when bool_or(exists (
        select from unnest(q.limiter_ids) u (id)
        where u.id <> all (p_limiter_ids) and (
          exists (select from partitions w where w.blocked_on = u.id and w.fair_key < q.fair_key)
          or exists (
            select from partitions w join limiters l on l.id = w.blocked_on
            where w.blocked_on = u.id and w.in_line_since <= _long_since(p_now)
              and _longest_first(p_policy, l.admitted, 1) > 0)))) then 'waiting' end
    from partitions q where q.id = any(p_partition_ids));
end
$$;
