-- The small way of admission: what _admit_locked does, for one job to eight. Of the claimed partitions the one with the least
-- virtual time goes next, if each of its limiters has room for its next job. _admit_locked ranks sets, and chooses the same
-- jobs. Its statements cost several times as much.
--
-- Whatever takes more than that is left to the large way, by an error DPOUT whose message says what it is: docs/engine.md lists them.
--
--   p_claimed   partitions that the caller has locked. Their jobs whose time has come are due
--   p_began     when the pass began; null: it is none
--   full_ids    their limiters that have no slot left
--   is_timed    one of them goes on at a time that is known, or at once
--
-- Locks: limiters, staged rows, Graphile Worker's rows. It waits for no limiter and for no staged row.
create or replace function _admit_few(
  p_policy policies, p_claimed claimed[], p_now timestamptz, p_bounded boolean, p_began timestamptz,
  out admitted int, out denied jsonb, out full_ids bigint[], out is_timed boolean
) language plpgsql as $$
#variable_conflict use_column
declare
  c_most constant int := 8;
  v_admission bigint := _admission_now();
  v_start timestamptz := clock_timestamp() - _clocks_behind() - c_most * interval '1 microsecond';
  v_most int := c_most;            -- as many jobs can go: a limiter that all partitions have has no more room
  v_partition_ids uuid[] := '{}';
  v_limiter_ids bigint[] := '{}';
  v_ids bigint[] := '{}';          -- the limiters,
  v_rooms room_before[] := '{}';   -- and in the same places what each has left
  v_capacities float8[] := '{}';
  v_closed bigint[] := '{}';       -- buckets that a dearer job waits for
  v_room room_before;
  v_line claimed;
  v_job candidate;
  v_staged staged_jobs;
  v_heads candidate[] := array_fill(null::candidate, array[cardinality(p_claimed)]);   -- the first job that stays
  v_taken int[] := array_fill(0, array[cardinality(p_claimed)]);
  v_lacks int;
  v_reason text;
  v_mark record;
  v_added record;
  v_load load_change[] := '{}';
  v_wakes timestamptz[] := '{}';   -- of the limiters
  v_short_tasks text[];
  v_free int;                      -- worker slots for jobs of long tasks
  v_elsewhere boolean := false;
  v_pasts past[] := '{}';
  v_at int;
  v_id bigint;
  -- of the jobs that go
  v_specs :GRAPHILE_WORKER_SCHEMA.job_spec[] := '{}';
  v_staged_ids bigint[] := '{}';
  v_owners uuid[] := '{}';
  v_slots bigint[];
  v_all_slots text[] := '{}';
  v_costs float8[] := '{}';
  v_waited real[] := '{}';
begin
  denied := '{}'; full_ids := '{}'; is_timed := false;
  foreach v_line in array p_claimed loop
    v_partition_ids := v_partition_ids || v_line.id;
    v_limiter_ids := v_limiter_ids || v_line.limiter_ids;
  end loop;
  foreach v_room in array _lock_rooms((p_policy).id, v_limiter_ids, p_now, p_bounded) loop
    v_ids := v_ids || v_room.id;
    v_rooms := v_rooms || v_room;
    v_capacities := v_capacities || v_room.capacity;
    if v_room.slots < v_most and not exists (
      select from unnest(p_claimed) c where v_room.id <> all (c.limiter_ids)) then
      v_most := v_room.slots;
    end if;
    v_reason := case when v_room.reserved_for is not null then 'reserved'
      when v_room.shadow_slots is not null or v_room.shadow_tokens is not null then 'shadow'
      when v_room.share is not null then 'per worker' end;
    if v_reason is not null then
      raise exception '%', v_reason using errcode = 'DPOUT';
    end if;
  end loop;
  foreach v_line in array p_claimed loop
    v_reason := case when not v_line.limiter_ids <@ v_ids then 'locked' when v_line.probing then 'probe' end;
    if v_reason is not null then
      raise exception '%', v_reason using errcode = 'DPOUT';
    end if;
  end loop;
  select s.short_tasks, s.free into v_short_tasks, v_free from _slots_for_long_jobs(p_policy, p_now) s;

  -- in the order of their virtual times, see _rank
  for v_job in
    select s.ct, s.id, c.id, s.pos, s.priority, s.run_at, s.cost,
      case when (p_policy).half_life is null then 0 when c.goes_first and s.pos = 1 then '-Infinity'
        else (case when d.decayed < 0.001 then 0 else d.decayed end + s.pos) / c.weight end as vt,   -- as _offers
      s.pos = 1 and _is_new(p_policy, c.admitted_at, p_now), null, s.is_plain
    from unnest(p_claimed) c
    cross join lateral (
      select _decayed(c.decayed_admits, c.decayed_at, (p_policy).half_life, p_now) as decayed) d
    cross join lateral (
      select x.ctid as ct, x.id, x.priority, x.run_at, x.cost, x.job_key is null and x.parked_job_id is null as is_plain,
        row_number() over (order by x.priority, x.run_at, x.id)::int as pos
      from staged_jobs x
      where x.partition_id = c.id and x.due and (x.priority, x.run_at, x.id) >= (c.head_priority, c.head_run_at, c.head_id)
      order by x.priority, x.run_at, x.id limit v_most + 1
    ) s
    order by vt, s.priority, s.run_at, s.id
  loop
    v_at := array_position(v_partition_ids, v_job.partition_id);
    continue when v_heads[v_at].staged_id is not null;   -- the one before it stays
    v_line := p_claimed[v_at];
    v_lacks := _first_lack(v_rooms, v_ids, v_closed, v_line.limiter_ids, v_line.id, v_job.cost, p_now);
    if v_lacks is not null or v_taken[v_at] = (p_policy).batch_size or cardinality(v_specs) = c_most then
      v_heads[v_at] := v_job;
      v_room := v_rooms[v_lacks];
      if v_room.breadth > 0 and v_room.tokens is not null then
        v_closed := v_closed || v_room.id;
      elsif v_room.breadth = 1 then
        -- one that waits for two shared scopes may have a slot reserved
        foreach v_id in array v_line.limiter_ids loop
          if v_id <> v_room.id and (v_rooms[array_position(v_ids, v_id)]).breadth = 1 then
            raise exception 'reserved' using errcode = 'DPOUT';
          end if;
        end loop;
      end if;
      continue;
    end if;
    if not v_job.is_plain then
      raise exception 'keyed' using errcode = 'DPOUT';
    end if;
    if (p_policy).history_kept_for is not null then
      v_pasts := v_pasts || _pasts_of(array[v_job.staged_id]);
    end if;
    delete from staged_jobs s
    where s.ctid = any(array(
      select x.ctid from staged_jobs x where x.ctid = v_job.ct and x.id = v_job.staged_id for update skip locked))
    returning s.* into v_staged;
    if v_staged.id is null then   -- another session has it locked
      v_job.chosen := true;
      v_heads[v_at] := v_job;
      continue;
    end if;
    v_free := v_free - 1;
    if v_free < 0 and v_staged.task_identifier <> all (v_short_tasks) then
      raise exception 'long task' using errcode = 'DPOUT';
    end if;
    v_elsewhere := v_elsewhere or v_staged.queue_name is not null or v_staged.flags is not null;
    v_taken[v_at] := v_taken[v_at] + 1;
    v_slots := '{}';
    foreach v_id in array v_line.limiter_ids loop
      v_room := v_rooms[array_position(v_ids, v_id)];
      v_room.admitted := v_room.admitted + 1;
      if v_room.tokens is null then
        v_slots := v_slots || v_id;
        v_room.slots := v_room.slots - 1;
      else
        v_room.tokens := v_room.tokens - v_job.cost;
        v_room.capacity := 'Infinity';   -- a full bucket lets the first job go, whatever it costs
        v_room.spent := case when v_room.spent is not null then _window_spend(
          v_room.spent, v_room.window_seconds, v_room.remembered, v_job.cost, p_now) end;
      end if;
      v_rooms[array_position(v_ids, v_id)] := v_room;
    end loop;
    v_specs := v_specs || _spec_of(
      v_staged, v_admission, v_start + cardinality(v_specs) * interval '1 microsecond'
        - case when v_job.overtakes then interval '900 milliseconds' else '0' end);
    v_staged_ids := v_staged_ids || v_staged.id;
    v_owners := v_owners || v_line.id;
    v_all_slots := v_all_slots || v_slots::text;
    v_costs := v_costs || v_job.cost;
    v_waited := v_waited || _seconds(1000 * greatest(date_part('epoch', p_now) - date_part('epoch', v_job.run_at), 0));
  end loop;

  admitted := cardinality(v_specs);
  if admitted > 0 then
    for v_added in select j.id, j.revision, j.flags from :GRAPHILE_WORKER_SCHEMA.add_jobs(v_specs) j loop
      v_at := array_position(v_staged_ids, _staged_id_text(v_added.flags)::bigint);
      insert into in_flight_jobs (
        job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, admitted_at)
      values (v_added.id, v_staged_ids[v_at], v_admission, v_added.revision, (p_policy).id, v_owners[v_at],
        v_all_slots[v_at]::bigint[], v_costs[v_at], p_now);
    end loop;
  end if;
  for v_at in 1..cardinality(v_ids) loop
    v_rooms[v_at].capacity := v_capacities[v_at];
    if (v_rooms[v_at]).slots < 1 then
      full_ids := full_ids || v_ids[v_at];
    end if;
  end loop;
  for v_at in 1..cardinality(p_claimed) loop
    v_line := p_claimed[v_at];
    v_job := v_heads[v_at];
    v_lacks := case when v_job.staged_id is not null then
      _first_lack(v_rooms, v_ids, '{}', v_line.limiter_ids, v_line.id, v_job.cost, p_now) end;
    v_room := v_rooms[v_lacks];
    v_reason := case when v_job.staged_id is null then null
      when v_lacks is not null then _lack_reason(v_room.kind, v_room.tokens, v_room.rate, coalesce(v_room.share, v_room.cap))
      when v_job.chosen then null
      when v_taken[v_at] = (p_policy).batch_size then 'batch' else 'tick_budget' end;
    if v_reason is not null then
      denied := denied || jsonb_build_object(v_reason, coalesce((denied ->> v_reason)::int, 0) + 1);
    end if;
    v_mark := _mark_one(p_policy, v_line, v_taken[v_at], v_job, v_room, v_reason, p_now);
    is_timed := is_timed or v_mark.is_timed;
    if v_mark.wake_at is not null then
      v_wakes[v_lacks] := least(v_wakes[v_lacks], v_mark.wake_at);
    end if;
  end loop;
  if admitted > 0 or v_wakes <> '{}' then
    update limiters l set
      tokens = case when l.by_tokens then x.tokens else l.tokens end,
      spent = coalesce(x.spent, l.spent),
      refilled_at = case when l.by_tokens then _throttle_filled_at(l.refilled_at, p_now) else l.refilled_at end,
      in_flight = case when l.by_tokens then l.in_flight else l.in_flight + (x.admitted - l.admitted)::int end,
      admitted = x.admitted,
      sampled_at = case when x.measured is not null then p_now else l.sampled_at end,
      sampled_released = case when x.measured is not null then l.released else l.sampled_released end,
      finished_per_second = coalesce(x.measured, l.finished_per_second),
      wake_at = least(l.wake_at, v_wakes[array_position(v_ids, l.id)]),
      elsewhere_until = case when v_elsewhere and l.kind = 'ahead' then p_now + interval '1 day' else l.elsewhere_until end
    from unnest(v_rooms) x where l.id = x.id and l.id = any(v_ids) 
      and (x.admitted > l.admitted or v_wakes[array_position(v_ids, l.id)] is not null);
  end if;

  if (p_policy).load_kept_for is not null then
    v_load := array(
      select row((p_policy).id, u.id, p_now, 0, 0, count(*), 0, 0)::load_change from unnest(v_owners) u (id) group by u.id);
  end if;
  insert into activity (policy_id, at, passes, pass_seconds, admitted, denied, waits, load)
  values ((p_policy).id, p_now, (p_began is not null)::int,
    coalesce(greatest(extract(epoch from clock_timestamp() - p_began), 0), 0), admitted, denied, v_waited, v_load);
  if (p_policy).max_pending_in_all is not null then
    perform _count_pending((p_policy).name, -admitted);
  end if;
  if (p_policy).history_kept_for is not null then
    perform _record_reasons((p_policy).id, v_partition_ids, p_now, p_began is not null);
    perform _record_admissions(v_pasts, array(
      select row(f.job_id, f.staged_id, true, false, f.revision, false, false)::admission
      from in_flight_jobs f where f.admission = v_admission and f.staged_id = any(v_staged_ids)), p_now);
  end if;
end
$$;

-- Locks these limiters, without those that others have locked, and says what each has left. In one statement for policies
-- that have no override, which are most.
create or replace function _lock_rooms(
  p_policy_id int, p_limiter_ids bigint[], p_now timestamptz, p_bounded boolean
) returns room_before[] language plpgsql as $$
declare
  v_locked limiters[];
begin
  if exists (select from overrides o where o.policy_id = p_policy_id) then
    v_locked := array(   -- in a statement of its own: overrides are applied to rows that are read again
      select l from limiters l
      where l.id = any(p_limiter_ids) order by l.id for no key update skip locked);
    return _limiters_of_pass(p_policy_id, v_locked, p_now, p_bounded);
  end if;
  return array(
    select n from (
      select l as limiter from limiters l
      where l.id = any(p_limiter_ids) order by l.id for no key update skip locked
    ) x cross join lateral _room_of(x.limiter, null, null, p_now, p_bounded) n);
end
$$;

-- The place of the first limiter of a partition, narrow before broad, that has no room for a job; null: each has. Of several
-- buckets of its own it is the one that is ready last. `p_ids` and `p_rooms` have the same places.
create or replace function _first_lack(
  p_rooms room_before[], p_ids bigint[], p_closed bigint[], p_limiter_ids bigint[], p_partition_id uuid, p_cost float8,
  p_now timestamptz
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
      v_room.slots, v_room.reserved_for, v_room.tokens, v_room.capacity, v_room.rate, p_partition_id, p_cost) then
      if v_room.breadth > 0 or v_room.tokens is null then
        return coalesce(v_first, v_at);
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

-- A plain staged job as Graphile Worker takes it. `start`: its run_at, if its caller gave none.
create or replace function _spec_of(job staged_jobs, admission bigint, start timestamptz)
returns :GRAPHILE_WORKER_SCHEMA.job_spec language sql volatile as $$
  select row(
    (job).task_identifier, (job).payload, (job).queue_name, case when (job).run_at_given then (job).run_at else start end,
    (job).max_attempts, null, (job).priority,
    case when (job).flags is not null then array(select f from unnest((job).flags) f where not _is_own_flag(f)) end
      || _ticket((job).id, admission, (job).partition_id, null,
        _trace_text((job).traceparent, (job).created_at, (job).run_at, (job).run_at_given))
  ):::GRAPHILE_WORKER_SCHEMA.job_spec;
$$;

-- Writes to one partition what went, its next job, and what that waits for. It does for one what _verdicts and
-- _mark_partitions do for all of a pass.
--
--   p_head     its next job; null: none is due
--   p_lacks    the limiter that has no room for it; null: each has
--   is_timed   it goes on at a time that is known, or at once
--   wake_at    when the router looks at the waiters of that limiter; null: when it is told
create or replace function _mark_one(
  p_policy policies, p_line claimed, p_taken int, p_head candidate, p_lacks room_before, p_reason text, p_now timestamptz,
  out is_timed boolean, out wake_at timestamptz
) language plpgsql as $$
declare
  v_stays boolean := (p_head).staged_id is not null;
  v_decayed float8 := p_taken
    + _decayed((p_line).decayed_admits, (p_line).decayed_at, (p_policy).half_life, p_now);
  v_next_at timestamptz;
  v_ready_at timestamptz;
  v_until timestamptz := '-infinity';
begin
  if not v_stays then
    v_next_at := (
      select min(coalesce(s.retry_at, s.run_at)) from staged_jobs s where s.partition_id = (p_line).id and not s.due);
  elsif (p_lacks).id is not null then
    v_until := 'infinity';
    if (p_lacks).tokens is not null then
      v_ready_at := _throttle_ready_at(
        (p_lacks).tokens, (p_lacks).rate, (p_lacks).per, (p_lacks).capacity, (p_lacks).spent, (p_lacks).calendar,
        (p_head).cost, p_now);
      v_until := least(case when (p_lacks).breadth = 0 then v_ready_at else 'infinity' end,
        _earlier_at((p_line).id, (p_head).priority, (p_head).run_at, (p_head).staged_id, false, p_now));
    elsif (p_lacks).ending > 0 then
      v_ready_at := p_now + interval '10 milliseconds';   -- nobody is notified when Graphile Worker has recorded an end
    end if;
    wake_at := case when (p_lacks).breadth > 0 then v_ready_at end;
  elsif (p_head).chosen then
    v_until := p_now + interval '50 milliseconds';   -- another session has its row locked
  end if;
  update partitions p set
    decayed_admits = v_decayed,
    decayed_at = _throttle_filled_at(p.decayed_at, p_now),
    fair_key = _fair_key(p_policy, v_decayed, p.mean_work, p.weight, p_now),
    looked_at = p_now,
    admitted_total = p.admitted_total + p_taken,
    staged = p.staged - p_taken,
    admitted_at = case when p_taken > 0 then p_now else p.admitted_at end,
    due_at = case
      when v_stays then case when p_reason = 'tick_budget' then p.due_at else least(p_now, clock_timestamp()) end
      when p_taken = 0 and v_next_at <= p_now then p_now + interval '50 milliseconds'   -- another session has it locked
      else coalesce(v_next_at, 'infinity') end,
    head_priority = case when v_stays then (p_head).priority else n.priority end,
    head_run_at = case when v_stays then (p_head).run_at else n.run_at end,
    head_id = case when v_stays then (p_head).staged_id else n.id end,
    head_cost = case when v_stays then (p_head).cost else 1 end,
    denied_until = v_until,
    blocked_on = (p_lacks).id,
    denied_reason = p_reason,
    held_until = '-infinity', breaker_until = '-infinity', paused_until = '-infinity',
    waiting_since = case when not v_stays then null when p_taken > 0 then p_now else least(p.waiting_since, p_now) end,
    in_line_since = case when not v_stays or (p_lacks).breadth = 0 then null when p_taken > 0 then p_now
      else least(case when p.ready or p.blocked_on is not null then p.in_line_since end, p_now) end,
    goes_first = false,
    visited = nextval('ticks')
  from _no_head() n
  where p.id = (p_line).id;
  is_timed := coalesce(case when v_stays then v_until < 'infinity' or wake_at is not null else v_next_at < 'infinity' end, false);
end
$$;
