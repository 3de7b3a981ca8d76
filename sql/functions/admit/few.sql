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
--   load         what the caller records of the load, see _record_load
--   full_ids     limiters that have no slot left
--   is_timed     one of the partitions goes on at a time that is known, or at once
--
-- Locks: the limiters that are left, staged rows, Graphile Worker's rows. It waits for no limiter and for no staged row.
create or replace function _admit_few(
  p_policy policies, p_claimed claimed[], p_limiters limiters[], p_freed int, p_new staged_jobs, p_bounded boolean,
  p_now timestamptz,
  out admitted int, out denied jsonb, out saturated text, out waits real[], out load load_change[], out full_ids bigint[],
  out is_timed boolean
) language plpgsql as $$
#variable_conflict use_column
declare
  v_admission bigint := _admission_now();
  v_start timestamptz;
  v_workers record;
  v_most int := _few() + 1;        -- as many jobs can go: a limiter that all partitions have has no more room
  v_limiters limiters[] := p_limiters;
  v_rooms room_before[] := '{}';   -- in the same places what each has left
  v_ids bigint[] := '{}';          -- its id
  v_tokens float8[] := '{}';       -- its tokens before
  v_capacities float8[] := '{}';   -- and its capacity
  v_partition_ids uuid[] := '{}';
  v_limiter_ids bigint[] := '{}';
  v_closed bigint[] := '{}';       -- buckets that a dearer job waits for
  v_is_overridden boolean;
  v_limiter limiters;
  v_room room_before;
  v_line claimed;
  v_decayed float8;
  v_pos int;
  v_jobs_staged int := 0;
  v_can float8;
  v_could float8 := 0;
  v_jobs candidate[] := '{}';
  v_job candidate;
  v_staged staged_jobs;
  v_heads candidate[] := array_fill(null::candidate, array[cardinality(p_claimed)]);   -- the first job that stays
  v_taken int[] := array_fill(0, array[cardinality(p_claimed)]);
  v_lacks int;
  v_reason text;
  v_marks record;
  v_lacking int[] := '{}';         -- for each partition the place of the limiter that has no room for its head
  v_reasons text[] := '{}';
  v_short_tasks text[];
  v_free int;                      -- worker slots for jobs of long tasks
  v_elsewhere boolean := false;
  v_pasts past[] := '{}';
  v_at int;
  v_id bigint;
  -- of the jobs that go
  v_specs :GRAPHILE_WORKER_SCHEMA.job_spec[] := '{}';
  v_staged_ids bigint[] := '{}';
  v_cts tid[] := '{}';
  v_starts timestamptz[] := '{}';
  v_owners int[] := '{}';          -- the places of their partitions
  v_slots bigint[];
  v_all_slots text[] := '{}';
  v_costs float8[] := '{}';
  v_found int := 0;
  v_is_long boolean := false;
  v_bytes bigint := 0;
begin
  denied := '{}'; waits := '{}'; load := '{}'; full_ids := '{}'; is_timed := false;
  foreach v_limiter in array v_limiters loop
    v_ids := v_ids || v_limiter.id;
  end loop;
  foreach v_line in array p_claimed loop
    v_partition_ids := v_partition_ids || v_line.id;
    v_limiter_ids := v_limiter_ids || v_line.limiter_ids;
    v_jobs_staged := v_jobs_staged + v_line.staged;
  end loop;
  if not v_limiter_ids <@ v_ids then
    v_limiters := v_limiters || array(
      select l from limiters l
      where l.id = any(v_limiter_ids) and l.id <> all (v_ids) order by l.id for no key update skip locked);
  end if;
  v_is_overridden := exists (select from overrides o where o.policy_id = (p_policy).id);
  select s.* into v_workers from _worker_slots((p_policy).id) s;
  v_start := clock_timestamp() - v_workers.behind - _few() * interval '1 microsecond';
  v_ids := '{}';
  foreach v_limiter in array v_limiters loop
    v_ids := v_ids || v_limiter.id;
    v_room := _room_for_few(v_limiter, v_is_overridden, p_bounded, case when v_limiter.kind = 'ahead' and p_bounded then _ahead_cap_of(
      v_limiter, (p_policy).ahead, (p_policy).ahead_seconds, v_workers.slots, v_workers.alike, p_now) end, p_now);
    v_rooms := v_rooms || v_room;
    v_tokens := v_tokens || v_room.tokens;
    v_capacities := v_capacities || v_room.capacity;
    if v_room.slots < v_most and v_room.id = any(v_limiter_ids) then
      if cardinality(p_claimed) = 1 then
        v_most := v_room.slots;
      elsif not exists (select from unnest(p_claimed) c where v_room.id <> all (c.limiter_ids)) then
        v_most := v_room.slots;
      end if;
    end if;
    v_reason := case when v_room.id <> all (v_limiter_ids) then null
      when v_room.reserved_for is not null then 'reserved'
      when v_room.shadow_slots is not null or v_room.shadow_tokens is not null then 'shadow'
      when v_room.share is not null and (p_new).parked_job_id is null then 'per worker' end;
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
  if v_workers.tasks > 1 and p_bounded then
    select s.short_tasks, s.free + coalesce(p_freed, 0) into v_short_tasks, v_free from _slots_for_long_jobs(p_policy, p_now) s;
  end if;

  -- in the order of their virtual times, see _rank
  if (p_new).id is null and v_jobs_staged > _few() and v_most > _few() then
    foreach v_line in array p_claimed loop   -- most that may go: many are found here, before any work
      v_can := least(v_line.staged, (p_policy).batch_size);
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

  if (p_new).id is not null then
    v_jobs := array[row(null, (p_new).id, v_line.id, 1, (p_new).priority, (p_new).run_at, (p_new).cost, 0,
      _is_new(p_policy, v_line.admitted_at, p_now), null, true)::candidate];
  end if;
  foreach v_line in array p_claimed loop
    exit when (p_new).id is not null;
    v_decayed := _decayed(v_line.decayed_admits, v_line.decayed_at, (p_policy).half_life, p_now);
    v_pos := 0;
    for v_job in
      select x.ctid, x.id, v_line.id, null, x.priority, x.run_at, x.cost, null, false, null,
        x.job_key is null and x.parked_job_id is null
      from staged_jobs x
      where x.partition_id = v_line.id and x.due
        and (x.priority, x.run_at, x.id) >= (v_line.head_priority, v_line.head_run_at, v_line.head_id)
      order by x.priority, x.run_at, x.id limit v_most + 1
    loop
      v_pos := v_pos + 1;
      v_job.pos := v_pos;
      v_job.vt := case when (p_policy).half_life is null then 0 when v_line.goes_first and v_pos = 1 then '-Infinity'
        else (case when v_decayed < 0.001 then 0 else v_decayed end + v_pos) / v_line.weight end;   -- as _offers
      v_job.overtakes := v_pos = 1 and _is_new(p_policy, v_line.admitted_at, p_now);
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
    v_lacks := _first_lack(v_rooms, v_ids, v_closed, v_line.limiter_ids, v_line.id, v_job.cost, p_now);
    if v_lacks is not null or v_taken[v_at] = (p_policy).batch_size then
      if (p_new).id is not null then
        raise exception 'full' using errcode = 'DPOUT';
      end if;
      v_heads[v_at] := v_job;
      v_room := v_rooms[v_lacks];
      if v_room.breadth > 0 and v_room.tokens is not null and v_taken[v_at] < (p_policy).batch_size then
        -- one that could not go even if all of its partition were as cheap as the cheapest stands in nobody's way, see _uses
        v_can := v_job.pos;
        foreach v_id in array v_line.limiter_ids loop
          v_pos := array_position(v_ids, v_id);
          v_can := least(v_can, case
            when v_tokens[v_pos] is null then (v_rooms[v_pos]).slots + (v_rooms[v_pos]).admitted - (v_limiters[v_pos]).admitted
            when (v_rooms[v_pos]).rate <= 0 then 0
            else _jobs_through(v_tokens[v_pos], v_capacities[v_pos], v_line.min_cost) end);
        end loop;
        if v_can = v_job.pos then
          v_closed := v_closed || v_room.id;
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
      v_room := v_rooms[array_position(v_ids, v_id)];
      v_room.admitted := v_room.admitted + 1;
      if v_room.tokens is null then
        v_slots := v_slots || v_id;
        v_room.slots := v_room.slots - 1;
      else
        v_room.tokens := v_room.tokens - v_job.cost;
        v_room.capacity := 'Infinity';   -- a full bucket lets the first job go, whatever it costs
      end if;
      v_rooms[array_position(v_ids, v_id)] := v_room;
    end loop;
    v_starts := v_starts || v_start + cardinality(v_starts) * interval '1 microsecond'
      - case when v_job.overtakes then interval '900 milliseconds' else '0' end;
    v_cts := v_cts || v_job.ct;
    v_staged_ids := v_staged_ids || v_job.staged_id;
    v_owners := v_owners || v_at;
    v_all_slots := v_all_slots || v_slots::text;
    v_costs := v_costs || v_job.cost;
    waits := waits || _seconds(1000 * greatest(date_part('epoch', p_now) - date_part('epoch', v_job.run_at), 0));
  end loop;

  admitted := cardinality(v_staged_ids);
  if (p_new).parked_job_id is not null then
    insert into in_flight_jobs (
      job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, work, admitted_at)
    select j.id, (p_new).id, v_admission, j.revision, (p_policy).id, (p_new).partition_id, v_slots, (p_new).cost,
      _work_of(p_policy, v_line.mean_work), p_now
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = (p_new).parked_job_id;
    v_reason := case when not found then 'locked' end;
  elsif (p_new).id is not null then
    v_specs := array[_spec_of(p_new, v_admission, v_starts[1])];
    v_reason := case when v_free < 1 and (p_new).task_identifier <> all (v_short_tasks) then 'long task' end;
  elsif admitted > 0 then
    if (p_policy).history_kept_for is not null then
      v_pasts := _pasts_of(v_staged_ids);
    end if;
    for v_staged in
      delete from staged_jobs s
      where s.ctid = any(array(
        select x.ctid from staged_jobs x
        where x.ctid = any(v_cts) and x.id = any(v_staged_ids)
          and (x.expires_at <= p_now) is not true   -- it was locked when the caller looked
        for update skip locked))
      returning s.*
    loop
      v_at := array_position(v_staged_ids, v_staged.id);
      v_specs[v_at] := _spec_of(v_staged, v_admission, v_starts[v_at]);
      v_is_long := v_is_long or v_free < v_at and v_staged.task_identifier <> all (v_short_tasks);
      v_elsewhere := v_elsewhere or v_staged.queue_name is not null or v_staged.flags is not null;
      v_found := v_found + 1;
      v_bytes := v_bytes + octet_length(v_staged.payload::text);
    end loop;
    if admitted > 1 then   -- as in the large way: ids go by the order of staging, and starts by that of the jobs
      v_specs := array(select v_specs[u.at] from unnest(v_staged_ids) with ordinality u (id, at) order by u.id);
    end if;
    v_reason := case when v_found < admitted then 'locked' when v_is_long then 'long task'
      when admitted > 1 and _portion(v_bytes) > 0 then 'large' end;
  end if;
  if v_reason is not null then
    raise exception '%', v_reason using errcode = 'DPOUT';
  end if;
  if cardinality(v_specs) > 0 then
    insert into in_flight_jobs (
      job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, work, sort_at, admitted_at)
    select j.id, x.staged_id, v_admission, j.revision, (p_policy).id, (p_claimed[x.owner]).id, x.slots::bigint[], x.cost,
      _work_of(p_policy, (p_claimed[x.owner]).mean_work), (p_new).sort_at, p_now
    from :GRAPHILE_WORKER_SCHEMA.add_jobs(v_specs) j
    join unnest(v_staged_ids, v_owners, v_all_slots, v_costs) x (staged_id, owner, slots, cost)
      on x.staged_id = _staged_id_text(j.flags)::bigint;
  end if;
  for v_at in 1..cardinality(v_ids) loop
    v_room := v_rooms[v_at];
    v_room.capacity := v_capacities[v_at];
    if v_room.spent is not null then
      v_room.spent := _window_spend(
        v_room.spent, v_room.window_seconds, v_room.remembered, v_tokens[v_at] - v_room.tokens, p_now);
    end if;
    v_rooms[v_at] := v_room;
    if v_room.slots < 1 then
      full_ids := full_ids || v_ids[v_at];
    end if;
  end loop;
  for v_at in 1..cardinality(p_claimed) loop
    v_job := v_heads[v_at];
    if v_job.staged_id is null then
      v_lacking := v_lacking || null::int;
      v_reasons := v_reasons || null::text;
      continue;
    end if;
    v_line := p_claimed[v_at];
    v_lacks := _first_lack(v_rooms, v_ids, '{}', v_line.limiter_ids, v_line.id, v_job.cost, p_now);
    v_room := v_rooms[v_lacks];
    v_reason := case
      when v_lacks is not null then _lack_reason(v_room.kind, v_room.tokens, v_room.rate, coalesce(v_room.share, v_room.cap))
      else 'batch' end;
    if v_room.breadth = 1 and v_room.tokens is null then
      -- one that waits for two shared scopes may have a slot reserved
      foreach v_id in array v_line.limiter_ids loop
        if v_id <> v_room.id and (v_rooms[array_position(v_ids, v_id)]).breadth = 1 then
          raise exception 'reserved' using errcode = 'DPOUT';
        end if;
      end loop;
    end if;
    v_lacking := v_lacking || v_lacks;
    v_reasons := v_reasons || v_reason;
    denied := denied || jsonb_build_object(v_reason, coalesce((denied ->> v_reason)::int, 0) + 1);
    if v_lacks is not null and v_room.breadth >= 2 and v_room.tokens is null then
      saturated := case when v_room.kind = 'ahead' then coalesce(saturated, 'workers') else 'gate' end;
    end if;
  end loop;
  v_marks := _mark_few(
    p_policy, p_claimed, v_taken, (p_new).id is null, v_heads, v_lacking, v_reasons, v_rooms, p_now);
  is_timed := v_marks.is_timed;
  perform _write_limiters(
    v_limiters, v_rooms, v_marks.wakes, case when p_freed > 0 then cardinality(p_limiters) else 0 end, v_elsewhere, p_now);
  if (p_policy).load_kept_for is not null then
    load := array(
      select row((p_policy).id, (p_claimed[u.owner]).id, p_now, 0, 0, count(*), 0, 0)::load_change
      from unnest(v_owners) u (owner) group by u.owner);
  end if;
  if (p_policy).max_pending_in_all is not null and (p_new).id is null then
    perform _count_pending((p_policy).name, -admitted);
  end if;
  if (p_policy).history_kept_for is not null and (p_new).id is null then
    perform _record_reasons((p_policy).id, v_partition_ids, p_now, false);
    perform _record_admissions(v_pasts, array(
      select row(f.job_id, f.staged_id, true, false, f.revision, false, false)::admission
      from in_flight_jobs f where f.admission = v_admission and f.staged_id = any(v_staged_ids)), p_now);
  end if;
end
$$;

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
  insert into activity (policy_id, at, passes, pass_seconds, admitted, denied, waits, load)
  values ((p_policy).id, p_now, 1, greatest(extract(epoch from clock_timestamp() - p_began), 0), admitted, denied, v_few.waits, v_few.load);
end
$$;

-- As many jobs go the small way, and as many partitions. Of 40 jobs of 40 partitions the large way makes no more work.
create or replace function _few() returns int language sql immutable as $$ select 20 $$;

-- What a limiter has left that its caller has locked and may have changed in memory, as _room_of says it. Most are caps and
-- buckets with the numbers of their gate. For those the query of _room_of takes six times as long as what it asks.
--
--   p_ahead_cap   how many jobs may be in flight, if it is the ahead bound; null: any number
create or replace function _room_for_few(
  p_limiter limiters, p_is_overridden boolean, p_bounded boolean, p_ahead_cap int, p_now timestamptz
) returns room_before language plpgsql stable as $$
declare
  v_set jsonb;
  v_turned_at timestamptz;
  v_room room_before;
begin
  if p_is_overridden then
    select o.set, o.turned_at into v_set, v_turned_at from _override_now((p_limiter).policy_id, p_limiter, p_now) o;
  end if;
  if v_set is not null or v_turned_at is not null or (p_limiter).reserved_until > p_now
    or ((p_limiter).numbers).shadow or ((p_limiter).numbers).per_worker or _is_window((p_limiter).numbers) then
    select n.* into v_room from _room_of(p_limiter, v_set, v_turned_at, p_now, p_bounded) n;
    return v_room;
  end if;
  v_room.id := (p_limiter).id;
  v_room.kind := (p_limiter).kind;
  v_room.breadth := (p_limiter).breadth;
  v_room.admitted := (p_limiter).admitted;
  if (p_limiter).by_tokens then
    v_room.rate := ((p_limiter).numbers).rate;
    v_room.per := ((p_limiter).numbers).per;
    v_room.capacity := _throttle_capacity((p_limiter).numbers);
    v_room.tokens := case when v_room.rate <= 0 then (p_limiter).tokens
      else _throttle_tokens((p_limiter).tokens, (p_limiter).refilled_at, (p_limiter).numbers, p_now) end;
    return v_room;
  end if;
  if (p_limiter).kind = 'ahead' then
    v_room.cap := p_ahead_cap;
    v_room.ending := case when p_bounded then cardinality(_still_ending((p_limiter).ending)) else 0 end;
    if (abs(extract(epoch from p_now - (p_limiter).sampled_at)) >= 1) is not false then   -- measured once a second
      v_room.measured := coalesce(((p_limiter).released - (p_limiter).sampled_released)
        / greatest(extract(epoch from p_now - (p_limiter).sampled_at)::float8, 1), 0);
    end if;
  else
    v_room.cap := _gate_cap(p_limiter, (p_limiter).numbers, null, p_now);
  end if;
  v_room.slots := case when v_room.cap is null then 2147483647
    else _concurrency_slots(v_room.cap, (p_limiter).in_flight + coalesce(v_room.ending, 0)) end;
  return v_room;
end
$$;

-- Writes limiters that the caller has locked: what went since they were read, and when passes look at their waiters.
--
--   p_rooms     in the same places what they have left; empty: nothing went
--   p_changed   the first so many limiters are written in any case: the caller has freed slots of them in memory
create or replace function _write_limiters(
  p_limiters limiters[], p_rooms room_before[], p_wakes timestamptz[], p_changed int, p_waits_elsewhere boolean, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_ids bigint[] := '{}';
  v_places int[] := '{}';
  v_admits int[] := '{}';
  v_admitted int;
begin
  for v_at in 1..cardinality(p_limiters) loop
    v_admitted := coalesce((p_rooms[v_at]).admitted - (p_limiters[v_at]).admitted, 0);
    if v_at <= p_changed or v_admitted > 0 or p_wakes[v_at] is not null or (p_rooms[v_at]).measured is not null
      or (p_limiters[v_at]).refilled_at > p_now + interval '1 second' then   -- its clock was wrong: the mark moves back
      v_ids := v_ids || (p_limiters[v_at]).id;
      v_places := v_places || v_at;
      v_admits := v_admits || v_admitted;
    end if;
  end loop;
  if v_ids = '{}' then
    return;
  end if;
  update limiters l set
    tokens = coalesce((p_rooms[x.at]).tokens, l.tokens),
    spent = coalesce((p_rooms[x.at]).spent, l.spent),
    refilled_at = case when (p_rooms[x.at]).tokens is null then l.refilled_at else _throttle_filled_at(l.refilled_at, p_now) end,
    in_flight = (p_limiters[x.at]).in_flight + case when l.by_tokens then 0 else x.admits end,
    admitted = l.admitted + x.admits,
    released = (p_limiters[x.at]).released,
    ending = (p_limiters[x.at]).ending,
    durations = (p_limiters[x.at]).durations,
    sampled_at = case when (p_rooms[x.at]).measured is not null then p_now else l.sampled_at end,
    sampled_released = case when (p_rooms[x.at]).measured is not null then (p_limiters[x.at]).released else l.sampled_released end,
    finished_per_second = coalesce((p_rooms[x.at]).measured, l.finished_per_second),
    wake_at = least(l.wake_at, p_wakes[x.at]),
    elsewhere_until = case when p_waits_elsewhere and l.kind = 'ahead' then p_now + interval '1 day' else l.elsewhere_until end
  from unnest(v_ids, v_places, v_admits) x (id, at, admits)
  where l.id = x.id and l.id = any(v_ids);
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

-- A plain staged job as Graphile Worker takes it. `start`: its run_at, if its caller gave none.
create or replace function _spec_of(job staged_jobs, admission bigint, start timestamptz)
returns :GRAPHILE_WORKER_SCHEMA.job_spec language sql volatile as $$
  select row(
    (job).task_identifier, (job).payload, (job).queue_name, case when (job).run_at_given then (job).run_at else start end,
    (job).max_attempts, null, (job).priority,
    case when (job).flags is not null then _own_flags_off((job).flags) end
      || _ticket((job).id, admission, (job).partition_id, null,
        _trace_text((job).traceparent, (job).created_at, (job).run_at, (job).run_at_given))
  ):::GRAPHILE_WORKER_SCHEMA.job_spec;
$$;

-- A job's flags without those that this package gives jobs.
create or replace function _own_flags_off(p_flags text[]) returns text[] language plpgsql immutable as $$
begin
  return array(select f from unnest(p_flags) f where not _is_own_flag(f));
end
$$;

-- Writes to each partition what went of it, its next job, and what that waits for. It does for a few what _verdicts and
-- _mark_partitions do for all of a pass. What it is told of the partitions has the places of `p_claimed`.
--
--   p_were_staged   what went was staged
--   p_heads     their next jobs; null: none is due
--   p_lacking   the place in `p_rooms` of the limiter that has no room for it; null: each has
--   is_timed    one of them goes on at a time that is known, or at once
--   wakes       in the places of `p_rooms`: when passes look at the waiters of that limiter; null: when somebody says so
create or replace function _mark_few(
  p_policy policies, p_claimed claimed[], p_taken int[], p_were_staged boolean, p_heads candidate[],
  p_lacking int[], p_reasons text[], p_rooms room_before[], p_now timestamptz,
  out is_timed boolean, out wakes timestamptz[]
) language plpgsql as $$
declare
  v_line claimed;
  v_head candidate;
  v_room room_before;
  v_stays boolean;
  v_ids uuid[] := '{}';
  v_decayed float8[] := '{}';
  v_due_ats timestamptz[] := '{}';
  v_untils timestamptz[] := '{}';
  v_until timestamptz;
  v_next_at timestamptz;
  v_ready_at timestamptz;
  v_wake_at timestamptz;
begin
  is_timed := false; wakes := '{}';
  for v_at in 1..cardinality(p_claimed) loop
    v_line := p_claimed[v_at];
    v_head := p_heads[v_at];
    v_stays := v_head.staged_id is not null;
    v_until := '-infinity';
    if not v_stays then
      v_next_at := (
        select min(coalesce(s.retry_at, s.run_at)) from staged_jobs s where s.partition_id = v_line.id and not s.due);
      is_timed := is_timed or coalesce(v_next_at < 'infinity', false);
    elsif p_lacking[v_at] is not null then
      v_room := p_rooms[p_lacking[v_at]];
      v_until := 'infinity';
      v_ready_at := null;
      if v_room.tokens is not null then
        v_ready_at := _throttle_ready_at(
          v_room.tokens, v_room.rate, v_room.per, v_room.capacity, v_room.spent, v_room.calendar, v_head.cost, p_now);
        v_until := least(case when v_room.breadth = 0 then v_ready_at else 'infinity' end,
          _earlier_at(v_line.id, v_head.priority, v_head.run_at, v_head.staged_id, false, p_now));
      elsif v_room.ending > 0 then
        v_ready_at := p_now + interval '10 milliseconds';   -- nobody is notified when Graphile Worker has recorded an end
      end if;
      v_wake_at := case when v_room.breadth > 0 then v_ready_at end;
      if v_wake_at is not null then
        wakes[p_lacking[v_at]] := least(wakes[p_lacking[v_at]], v_wake_at);
      end if;
      is_timed := is_timed or v_until < 'infinity' or v_wake_at is not null;
    else
      is_timed := true;
    end if;
    v_ids := v_ids || v_line.id;
    v_decayed := v_decayed || p_taken[v_at] * coalesce(_work_of(p_policy, v_line.mean_work), 1)
      + _decayed(v_line.decayed_admits, v_line.decayed_at, (p_policy).half_life, p_now);
    v_due_ats := v_due_ats || case
      when v_stays then least(p_now, clock_timestamp())
      when p_taken[v_at] = 0 and v_next_at <= p_now then p_now + interval '50 milliseconds'   -- another session has it locked
      else coalesce(v_next_at, 'infinity') end;
    v_untils := v_untils || v_until;
  end loop;
  update partitions p set
    decayed_admits = x.decayed,
    decayed_at = _throttle_filled_at(p.decayed_at, p_now),
    fair_key = _fair_key(p_policy, x.decayed, p.mean_work, p.weight, p_now),
    looked_at = p_now,
    admitted_total = p.admitted_total + x.taken,
    staged = p.staged - case when p_were_staged then x.taken else 0 end,
    admitted_at = case when x.taken > 0 then p_now else p.admitted_at end,
    due_at = x.due_at,
    head_priority = coalesce((p_heads[x.at]).priority, n.priority),
    head_run_at = coalesce((p_heads[x.at]).run_at, n.run_at),
    head_id = coalesce((p_heads[x.at]).staged_id, n.id),
    head_cost = coalesce((p_heads[x.at]).cost, 1),
    denied_until = x.until,
    blocked_on = (p_rooms[x.lacks]).id,
    denied_reason = x.reason,
    held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
    breaker_until = case when p.breaker_until <= p_now then '-infinity' else p.breaker_until end,
    paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end,
    waiting_since = case when (p_heads[x.at]).staged_id is null then null when x.taken > 0 then p_now
      else least(p.waiting_since, p_now) end,
    in_line_since = case when (p_heads[x.at]).staged_id is null or (p_rooms[x.lacks]).breadth = 0 then null
      when x.taken > 0 then p_now
      else least(case when p.ready or p.blocked_on is not null then p.in_line_since end, p_now) end,
    goes_first = false,
    visited = nextval('ticks')
  from unnest(v_ids, p_taken, v_decayed, v_due_ats, v_untils, p_lacking, p_reasons) with ordinality
    x (id, taken, decayed, due_at, until, lacks, reason, at)
  cross join _no_head() n
  where p.id = x.id and p.id = any(v_ids);
end
$$;

-- Why the small way left a job to the next pass, after an error that it does not expect. Graphile Worker may refuse a job, and the
-- pass reports that. Any other error is a mistake here: `failed: `, with its SQLSTATE and place.
--
--   p_context   as PG_EXCEPTION_CONTEXT says where it was raised
create or replace function _left_for_error(p_sqlstate text, p_context text) returns text language sql stable as $$
  select case when p_context like '%.add_jobs(%.job_spec[]%' then 'refused'
    else 'failed: ' || p_sqlstate || ' in '
      || coalesce(array_to_string(regexp_match(p_context, '(\w+)\([^)]*\) (line \d+)'), ' '), '') end;
$$;

-- Counts why a pass admits what the small way left. Of an error that nobody expects it tells the policy's leaders, who say so.
create or replace function _left_to_pass(p_policy_id int, p_left_for text, p_message text, p_now timestamptz)
returns void language plpgsql as $$
begin
  insert into activity (policy_id, at, left_to_pass)
  values (p_policy_id, p_now, jsonb_build_object(p_left_for, 1));
  if p_left_for like 'failed: %' then
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p.name, 'failed', left(substr(p_left_for, 9) || ': ' || p_message, 500))::text)
    from policies p where p.id = p_policy_id;
  end if;
end
$$;
