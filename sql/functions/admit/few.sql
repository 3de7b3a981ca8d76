-- The small way: at most twenty jobs, one after the other. Of these partitions none is stopped: who claims them leaves out
-- those that are paused or on hold (claim.sql), and a pass those of a policy that is paused.

-- The small way of a pass: as _admit_locked, if few jobs can go, and nothing but to admit them is to be done. Else it raises
-- DPOUT, and whatever its caller has done for it is to be undone.
--
-- The danger: a job that waits for another transaction would keep the limiters locked, as in _add_what_passes. The cure is the
-- same: it waits for less time than a pass does.
--
--   p_limiters   all limiters of these partitions. The caller has locked them as well
create or replace function _pass_of_few(
  p_policy policies, p_claimed claimed[], p_limiters limiters[], p_bounded boolean, p_now timestamptz, p_began timestamptz,
  out admitted int, out denied jsonb, out saturated text
) language plpgsql set lock_timeout = '50ms' as $$
declare
  v_few record;
begin
  if exists (
    select from staged_jobs s
    where s.partition_id = any(array(select c.id from unnest(p_claimed) c)) and s.expires_at <= p_now) then
    raise exception 'expired' using errcode = 'DPOUT';
  end if;
  v_few := _admit_few(p_policy, p_claimed, p_limiters, null, null, p_bounded, p_now);
  admitted := v_few.admitted; denied := v_few.denied; saturated := v_few.saturated;
  insert into activity (policy_id, at, passes, pass_seconds, admitted, denied, waits)
  values (p_policy.id, p_now, 1, greatest(extract(epoch from clock_timestamp() - p_began), 0), admitted, denied, v_few.waits);
end
$$;

-- The small way of admission: what _admit_locked does, for a few jobs (_few). Of the claimed partitions the one with the least
-- virtual time goes next, if each of its limiters has room for its next job. _admit_locked ranks sets, and chooses the same
-- jobs. Its statements cost several times as much.
--
-- Whatever takes more than that is left to the large way, by an error DPOUT whose message says what it is: docs/engine.md lists them.
--
--   p_claimed    partitions that the caller has locked. Their jobs whose time has come are due
--   p_limiters   limiters that the caller has locked. It may have freed slots of them in memory: each is written once, here
--   p_freed      of how many jobs it has; null: of none
--   p_new        the one job that is to go, which nobody has staged, of the one claimed partition, where none is due; null: staged ones.
--                Its parked_job_id: Graphile Worker has it already, and has started it
--   saturated    as in _charge
--   waits        how many seconds each job has waited
--   full_ids     limiters that have no slot left
--   is_timed     one of the partitions goes on at a time that is known, or at once
--
-- Locks: the limiters that are left, staged rows, Graphile Worker's rows. It waits for no limiter and for no staged row.
create or replace function _admit_few(
  p_policy policies, p_claimed claimed[], p_limiters limiters[], p_freed int, p_new staged_jobs, p_bounded boolean,
  p_now timestamptz,
  out admitted int, out denied jsonb, out saturated text, out waits real[], out full_ids bigint[],
  out is_timed boolean
) language plpgsql as $$
#variable_conflict use_column
declare
  v_admission bigint := _admission_now();
  v_start timestamptz;
  v_workers record;
  v_most int := _few() + 1;        -- as many jobs can go: a limiter that all partitions have has no more room
  v_limiters limiters[] := p_limiters;
  v_ids bigint[] := '{}';          -- in the same places the id of each
  v_rooms room_before[];           -- what it has left
  v_before room_before[];          -- and what it had before
  v_partition_ids uuid[];
  v_limiter_ids bigint[] := '{}';
  v_closed bigint[];               -- limiters that a dearer job waits for
  v_is_staged boolean := p_new.id is null;
  v_is_probing boolean;            -- one of them is
  v_limiter limiters;
  v_room room_before;
  v_line claimed;
  v_decayed float8;
  v_pos int;
  v_can float8;
  v_could float8 := 0;
  v_jobs candidate[] := '{}';
  v_job candidate;
  v_heads candidate[];             -- of each partition the first job that stays
  v_behind int[];                  -- and the place of the limiter that it lacked
  v_taken int[] := array_fill(0, array[cardinality(p_claimed)]);
  v_lacks int;
  v_reason text;
  v_verdicts verdict[];
  v_next_at timestamptz;           -- when a job of a partition without due ones is due
  v_ready_at timestamptz;          -- when the limiter that its next job waits for may have room
  v_until timestamptz;             -- when the partition is looked at again
  v_wakes timestamptz[];           -- when passes look at the waiters of a limiter, in the places of v_rooms
  v_short_tasks text[];
  v_free int;                      -- worker slots for jobs of long tasks
  v_leaving events[];
  v_at int;
  v_id bigint;
  -- of the jobs that go
  v_staged_ids bigint[] := '{}';
  v_cts tid[];
  v_starts timestamptz[];
  v_works float8[];
  v_slots bigint[];
  v_all_slots text[];
  v_found record;
  v_moved staged_jobs[];     -- as they were staged
  v_specs :GRAPHILE_WORKER_SCHEMA.job_spec[];
  v_bytes bigint;
  v_elsewhere boolean;
  v_none text;   -- what functions return that return nothing: "perform" costs a query
begin
  denied := '{}'; waits := '{}'; full_ids := '{}'; is_timed := false;
  foreach v_limiter in array v_limiters loop
    v_ids := v_ids || v_limiter.id;
  end loop;
  foreach v_line in array p_claimed loop
    v_partition_ids := v_partition_ids || v_line.id;
    v_limiter_ids := v_limiter_ids || v_line.limiter_ids;
    v_is_probing := v_is_probing or v_line.probing;
  end loop;
  if p_policy.keyed_scopes then
    p_claimed := _with_lanes(p_policy, p_claimed, p_now);
  end if;
  if not v_limiter_ids <@ v_ids then
    v_limiters := v_limiters || array(
      select l from limiters l
      where l.id = any(v_limiter_ids) and l.id <> all (v_ids) order by l.id for no key update skip locked);
  end if;
  select s.slots, s.alike, s.tasks, s.behind, exists (select from overrides o where o.policy_id = p_policy.id) as are_overridden
  into v_workers from _worker_slots(p_policy.id) s;
  v_start := clock_timestamp() - v_workers.behind - _few() * interval '1 microsecond';
  v_ids := '{}';
  foreach v_limiter in array v_limiters loop
    v_room := _room_for_few(v_limiter, v_workers.are_overridden, p_bounded, case when v_limiter.kind = 'ahead' and p_bounded
      then _ahead_cap_of(v_limiter, p_policy.ahead, p_policy.ahead_seconds, v_workers.slots, v_workers.alike, p_now) end, p_now);
    v_ids := v_ids || v_room.id;
    v_rooms := v_rooms || v_room;
    continue when v_room.id <> all (v_limiter_ids);
    if v_room.slots < v_most then
      if cardinality(p_claimed) = 1 then
        v_most := v_room.slots;
      elsif not exists (select from unnest(p_claimed) c where v_room.id <> all (c.limiter_ids)) then
        v_most := v_room.slots;
      end if;
    end if;
    v_reason := case when v_room.reserved_for is not null then 'reserved'
      when v_room.shadow_slots is not null or v_room.shadow_tokens is not null then 'shadow'
      when v_room.pools is not null and p_new.parked_job_id is null then 'per worker' end;
    exit when v_reason is not null;
  end loop;
  v_before := v_rooms;
  v_reason := case when v_reason is not null then v_reason when not v_limiter_ids <@ v_ids then 'locked'
    when v_is_probing then 'probe' end;
  if p_policy.shared_ids <> '{}' then
    foreach v_limiter in array v_limiters loop
      if v_limiter.shared and _is_of_others(p_policy, v_limiter, p_now) then
        v_reason := coalesce(v_reason, 'shared');
      end if;
    end loop;
  end if;
  if v_reason is not null then
    raise exception '%', v_reason using errcode = 'DPOUT';
  end if;
  if v_workers.tasks > 1 and p_bounded then
    select s.short_tasks, s.free + coalesce(p_freed, 0) into v_short_tasks, v_free from _slots_for_long_jobs(p_policy, p_now) s;
  end if;

  -- in the order of their virtual times, see _rank
  if v_is_staged and v_most > _few() then
    foreach v_line in array p_claimed loop   -- most that may go: many are found here, before any work
      v_can := least(v_line.staged, p_policy.batch_size);
      foreach v_id in array v_line.limiter_ids loop
        v_room := v_rooms[array_position(v_ids, v_id)];
        v_can := least(v_can, v_room.slots, case when v_room.tokens is not null and v_line.min_cost > 0
          then ceil(greatest(v_room.tokens / v_line.min_cost, 1)) end);
      end loop;
      v_could := v_could + v_can;
    end loop;
    if v_could > _few() then
      raise exception 'many' using errcode = 'DPOUT';
    end if;
  end if;

  foreach v_line in array p_claimed loop
    if not v_is_staged then
      v_jobs := array[row(null, p_new.id, v_line.id, 1, p_new.priority, p_new.run_at, p_new.cost, 0,
        _is_new(p_policy, v_line.weight, v_line.admitted_at, p_now), null, true, greatest(p_new.run_at, p_new.created_at))::candidate];
      exit;
    end if;
    v_decayed := _decayed(v_line.decayed_admits, v_line.decayed_at, p_policy.half_life, p_now);
    v_pos := 0;
    for v_job in
      select x.ctid, x.id, v_line.id, null, x.priority, x.run_at, x.cost, null, false, null,
        x.job_key is null and x.parked_job_id is null, greatest(x.run_at, x.created_at)
      from staged_jobs x
      where x.partition_id = v_line.id and x.due
        and (x.priority, x.run_at, x.id) >= (v_line.head_priority, v_line.head_run_at, v_line.head_id)
      order by x.priority, x.run_at, x.id limit v_most + 1
    loop
      v_pos := v_pos + 1;
      v_job.pos := v_pos;
      v_job.vt := case when p_policy.half_life is null then 0 when v_pos <= v_line.first_jobs then '-Infinity'
        else (case when v_decayed < 0.001 then 0 else v_decayed end + (v_line.lane - v_line.lanes) + v_pos * v_line.lanes)
          / v_line.weight end;   -- as _rank
      v_job.overtakes := v_pos = 1 and _is_new(p_policy, v_line.weight, v_line.admitted_at, p_now);
      v_jobs := v_jobs || v_job;
    end loop;
  end loop;
  if cardinality(p_claimed) > 1 then
    v_jobs := array(select j from unnest(v_jobs) j order by j.vt, j.priority, j.run_at, j.staged_id);
  end if;
  foreach v_job in array v_jobs loop
    v_at := array_position(v_partition_ids, v_job.partition_id);
    continue when v_heads[v_at].staged_id is not null;   -- the one before it stays
    v_line := p_claimed[v_at];
    v_lacks := _first_lack(v_rooms, v_ids, v_closed, v_line.limiter_ids, v_line.id, v_job.cost, p_policy.by_cost, p_now);
    if v_lacks is not null or v_taken[v_at] = p_policy.batch_size then
      if not v_is_staged then
        raise exception 'full' using errcode = 'DPOUT';
      end if;
      v_heads[v_at] := v_job;
      v_behind[v_at] := v_lacks;
      v_room := v_rooms[v_lacks];
      if v_room.breadth > 0 and (v_room.tokens is not null or p_policy.by_cost) and v_taken[v_at] < p_policy.batch_size then
        -- one that could not go even if all of its partition were as cheap as the cheapest stands in nobody's way, see _rank
        v_can := v_job.pos;
        foreach v_id in array v_line.limiter_ids loop
          v_pos := array_position(v_ids, v_id);
          v_can := least(v_can, case
            when (v_before[v_pos]).tokens is null then case when p_policy.by_cost then _jobs_in_slots(
              (v_before[v_pos]).slots, _takes(v_line.limiter_ids, v_id), (v_before[v_pos]).cap, (v_before[v_pos]).breadth)
              else (v_before[v_pos]).slots end
            when (v_before[v_pos]).rate <= 0 then 0
            else _jobs_through((v_before[v_pos]).tokens, (v_before[v_pos]).capacity, v_line.min_cost) end);
        end loop;
        if v_can = v_job.pos then
          v_closed := v_closed || v_room.id;
          if v_room.tokens is null then
            full_ids := full_ids || v_room.id;
          end if;
        end if;
      end if;
      continue;
    end if;
    v_reason := case when cardinality(v_staged_ids) = _few() then 'many' when not v_job.is_plain then 'keyed' end;
    if v_reason is not null then
      raise exception '%', v_reason using errcode = 'DPOUT';
    end if;
    v_taken[v_at] := v_taken[v_at] + 1;
    v_slots := '{}';
    foreach v_id in array v_line.limiter_ids loop
      v_pos := array_position(v_ids, v_id);
      v_room := v_rooms[v_pos];
      v_room.admitted := v_room.admitted + 1;
      if v_room.tokens is null then
        v_slots := v_slots || v_id;
        v_room.slots := v_room.slots - 1;
      else
        v_room.tokens := v_room.tokens - v_job.cost;
        v_room.capacity := 'Infinity';   -- a full bucket lets the first job go, whatever it costs
      end if;
      v_rooms[v_pos] := v_room;
    end loop;
    v_starts := v_starts || v_start + cardinality(v_staged_ids) * interval '1 microsecond'
      - case when v_job.overtakes then interval '900 milliseconds' else '0' end;
    v_cts := v_cts || v_job.ct;
    v_staged_ids := v_staged_ids || v_job.staged_id;
    v_works := v_works || _work_of(p_policy, v_line.mean_work);
    v_all_slots := v_all_slots || v_slots::text;
    waits := waits || _seconds(1000 * greatest(date_part('epoch', p_now) - date_part('epoch', v_job.due_at), 0));
  end loop;

  admitted := cardinality(v_staged_ids);
  if admitted > 0 then
    if not v_is_staged then
      v_moved := array[p_new];
      v_specs := array[_spec_of(p_new, v_admission, v_starts[1])];
    else
      if p_policy.recorded then
        v_leaving := _leaving(v_staged_ids, p_now);
      end if;
      v_found := _take_few(v_cts, v_staged_ids, v_starts, v_admission, p_now);
      v_moved := v_found.jobs; v_specs := v_found.specs; v_bytes := v_found.bytes; v_elsewhere := v_found.wait_elsewhere;
    end if;
    v_reason := case when cardinality(v_moved) < admitted then 'locked' end;
    if v_free < admitted and p_new.parked_job_id is null then
      v_reason := coalesce(v_reason, (
        select 'long task' from unnest(v_moved) j
        where array_position(v_staged_ids, j.id) > v_free and j.task_identifier <> all (v_short_tasks) limit 1));
    end if;
    v_reason := case when v_reason is not null then v_reason
      when admitted > 1 and _portion(v_bytes) > 0 then 'large'
      when not _put_few_in_flight(p_policy.id, v_specs, p_new.parked_job_id, v_moved, v_staged_ids, v_all_slots, v_works,
        p_new.sort_at, v_admission, p_now) then 'locked' end;
    if v_reason is not null then
      raise exception '%', v_reason using errcode = 'DPOUT';
    end if;
  end if;
  for v_at in 1..cardinality(v_ids) loop
    v_room := v_rooms[v_at];
    if v_room.tokens is not null then
      v_room.capacity := (v_before[v_at]).capacity;
      if v_room.spent is not null then
        v_room.spent := _window_spend(
          v_room.spent, v_room.window_seconds, v_room.remembered, (v_before[v_at]).tokens - v_room.tokens, p_now);
      end if;
      v_rooms[v_at] := v_room;
    end if;
    if v_room.slots < 1 then
      full_ids := full_ids || v_ids[v_at];
    end if;
  end loop;
  for v_at in 1..cardinality(p_claimed) loop
    v_line := p_claimed[v_at];
    v_job := v_heads[v_at];   -- the next one
    v_room := null; v_reason := null; v_next_at := null; v_ready_at := null; v_until := null;
    if v_job.staged_id is null then
      v_next_at := (
        select min(coalesce(s.retry_at, s.run_at)) from staged_jobs s where s.partition_id = v_line.id and not s.due);
      is_timed := is_timed or coalesce(v_next_at < 'infinity', false);
    else
      v_lacks := _first_lack(v_rooms, v_ids, '{}', v_line.limiter_ids, v_line.id, v_job.cost, p_policy.by_cost, p_now);
      if v_lacks is null and p_policy.by_cost and (v_rooms[v_behind[v_at]]).tokens is null then
        v_lacks := v_behind[v_at];   -- it waits behind one that takes more slots, see _behind_dear
      end if;
      v_room := v_rooms[v_lacks];
      v_reason := case
        when v_lacks is not null then _lack_reason(v_room.kind, v_room.tokens, v_room.rate, coalesce(v_room.share, v_room.cap),
          case when p_policy.by_cost then _takes(v_line.limiter_ids, v_room.id) else 1 end)
        else _turn_reason(v_taken[v_at], p_policy.batch_size) end;
      denied := denied || jsonb_build_object(v_reason, coalesce((denied ->> v_reason)::int, 0) + 1);
    end if;
    if v_room.id is not null then   -- when it is looked at again, as in _charge
      v_until := 'infinity';
      if v_room.tokens is not null then
        v_ready_at := _throttle_ready_at(
          v_room.tokens, v_room.rate, v_room.per, v_room.capacity, v_room.spent, v_room.calendar, v_job.cost, p_now);
        v_until := least(case when v_room.breadth = 0 then v_ready_at else 'infinity' end,
          _earlier_at(v_line.id, v_job.priority, v_job.run_at, v_job.staged_id, false, p_now));
      elsif v_room.ending > 0 then
        v_ready_at := p_now + interval '10 milliseconds';
      end if;
      if v_room.breadth > 0 and v_ready_at is not null then
        v_wakes[v_lacks] := least(v_wakes[v_lacks], v_ready_at);
      end if;
      is_timed := is_timed or v_until < 'infinity' or v_wakes[v_lacks] is not null;
      if v_room.tokens is null and v_room.breadth = 1 then
        -- one that waits for two shared scopes may have a slot reserved
        foreach v_id in array v_line.limiter_ids loop
          if v_id <> v_room.id and (v_rooms[array_position(v_ids, v_id)]).breadth = 1 then
            raise exception 'reserved' using errcode = 'DPOUT';
          end if;
        end loop;
      elsif v_room.tokens is null and v_room.breadth >= 2 and v_reason <> 'cost_over_max' then
        saturated := case when v_room.kind = 'ahead' then coalesce(saturated, 'workers') else 'gate' end;
      end if;
    end if;
    is_timed := is_timed or (v_reason is not null and v_room.id is null);   -- it is its turn next
    v_verdicts := v_verdicts || row(
      v_line.id, v_line.limiter_ids, v_line.weight, v_line.due_at, v_line.waiting_since,
      v_taken[v_at] * coalesce(_work_of(p_policy, v_line.mean_work), 1)
        + _decayed(v_line.decayed_admits, v_line.decayed_at, p_policy.half_life, p_now),
      v_taken[v_at], null, v_job.staged_id, v_job.priority, v_job.run_at, v_job.cost, v_next_at,
      case when v_is_staged then v_taken[v_at] else 0 end,
      null, v_room.breadth, v_room.kind, v_room.tokens is not null, v_ready_at, v_reason, v_until, v_room.id)::verdict;
  end loop;
  v_none := _mark_partitions(p_policy, v_verdicts, p_now, nextval('ticks'));
  if p_policy.keyed_scopes then
    perform _share_lanes(p_policy, p_claimed, p_now);
  end if;
  v_none := _write_limiters(
    v_ids, v_limiters, v_rooms, v_wakes, case when p_freed > 0 then cardinality(p_limiters) else 0 end, v_elsewhere, p_now);
  if p_policy.max_pending_in_all is not null and v_is_staged then
    perform _count_pending(p_policy.name, -admitted);
  end if;
  if v_leaving is not null then
    perform _tell_admissions(v_leaving, _few_in_flight(v_admission, v_staged_ids), p_now, true);
  end if;
  if p_policy.recorded and v_is_staged then
    perform _tell_waits(p_policy.id, v_partition_ids, p_now, p_freed is null);
  end if;
end
$$;

-- The place of the first limiter of a partition, narrow before broad, that has no room for a job; null: each has. Of several
-- buckets of its own it is the one that is ready last. `p_ids` and `p_rooms` have the same places. `p_by_cost`: its job may take
-- several slots.
create or replace function _first_lack(
  p_rooms room_before[], p_ids bigint[], p_closed bigint[], p_limiter_ids bigint[], p_partition_id uuid, p_cost float8,
  p_by_cost boolean, p_now timestamptz
) returns int language plpgsql stable as $$
declare
  v_room room_before;
  v_first int;
  v_last timestamptz;
  v_ready_at timestamptz;
  v_at int;
  v_id bigint;
begin
  foreach v_id in array p_limiter_ids loop
    v_at := array_position(p_ids, v_id);
    v_room := p_rooms[v_at];
    exit when v_first is not null and v_room.breadth > 0;
    if v_id = any(p_closed) or _lacks_room(
      v_room.slots, v_room.reserved_for, v_room.reserved, v_room.tokens, v_room.capacity, v_room.rate, p_partition_id, p_cost,
      case when p_by_cost then _takes(p_limiter_ids, v_id) else 1 end) then
      if v_room.breadth > 0 or v_room.tokens is null then
        continue when v_first is not null;
        return v_at;
      end if;
      v_ready_at := _throttle_ready_at(
        v_room.tokens, v_room.rate, v_room.per, v_room.capacity, v_room.spent, v_room.calendar, p_cost, p_now);
      if v_first is null or v_ready_at > v_last then
        v_first := v_at;
        v_last := v_ready_at;
      end if;
    end if;
  end loop;
  return v_first;
end
$$;

-- Why a pass admits the jobs of this policy, and not _admit_few; null: that may. It is a budget, a breaker, an order or whatever
-- else takes more than to admit a job.
create or replace function _left_for(policy policies, now timestamptz) returns text language sql immutable as $$
  select case
    when not (policy).enabled then 'disabled'
    when (policy).paused_until > now then 'paused'
    when (policy).admission_budget is not null then 'budget'
    when (policy).breaker_failures is not null then 'breaker'
    when (policy).fair_by_work then 'fair by work'
    when (policy).when_busy <> 'wait' then 'whenBusy'
    when (policy).job_order is not null then 'order'
    when (policy).per_worker then 'per worker' end;
$$;
