-- What limiters have left now. Whoever decides asks here.

-- What each of these limiters has left at `p_now`, overrides applied: see _room_of. A caller that decides by it has
-- locked the limiters in an earlier statement.
create or replace function _rooms_of(
  p_limiter_ids bigint[], p_now timestamptz, p_bounded boolean
) returns setof room_before language sql stable as $$
  select n.* from limiters l
  cross join lateral _override_now(l.policy_id, l, p_now) o
  cross join lateral _room_of(l, o.set, o.turned_at, p_now, p_bounded) n
  where l.id = any(p_limiter_ids);
$$;

-- What a limiter has left at `p_now` under these numbers of an override (`p_set`, null: its own): `slots` of a cap, `tokens`
-- of a throttle. The other one is null. At a rate of zero or less nothing goes, whatever the bucket has.
--
-- A shadow gate has endless room here, as a cap without a bound, so nothing that ranks or calls knows of it. Beside it stands
-- what the gate really has, in `shadow_tokens` or `shadow_slots`.
--
--   p_turned_at   when an override last gave it other numbers, or took them back; null: never
--   p_bounded     false: the ahead bound does not count. An explicit tick is not kept just ahead of the workers.
--   spent         of a window, whose tokens are what it has left; else null
--   measured      how many jobs of the policy finished in a second, if it is time to measure anew
--   remembered    for how many seconds a window must know what was spent. An override's window may be shorter than its
--     own. So may a new definition's, and the next deployment may bring the old one back.
--   share         of a gate with `perWorker`: how many jobs each worker pool may run at once. Else null
--   pools         of a gate with `perWorker`: how many worker pools its cap goes by. Else null
--   rises_at      when the cap rises that holds because a worker pool has requeued a job; null: none does
--   ending        released jobs that Graphile Worker still has; the ahead bound has no room for them
--
-- It is a query without plpgsql, so that PostgreSQL puts it into that of its callers.
create or replace function _room_of(
  l limiters, p_set jsonb, p_turned_at timestamptz, p_now timestamptz, p_bounded boolean
) returns setof room_before language sql stable as $$
  select e.id, e.gate, e.kind, e.breadth, e.position, e.scope_key, (e.numbers).rate,
    case when (e.numbers).sliding then _window_seconds(e.numbers, p_now) else (e.numbers).per end,
    case when e.by_tokens then _throttle_capacity(e.numbers) end,
    case when not e.is_shadow then e.tokens_now end,
    case when e.is_window then e.spent end,
    case when e.is_shadow then 2147483647 else e.slots_now end,
    e.cap, e.in_flight,
    -- A reservation counts while its partition waits, or is about to be looked at. If it lasts for longer than the
    -- partition has waited, a clock was ahead.
    (select q.id from partitions q
      where q.id = e.reserved_for and q.due_at < 'infinity' and q.stopped_until <= p_now
        and e.reserved_until <= p_now + greatest(p_now - q.waiting_since, '1 second') + interval '1 second'),
    e.reserved_until, e.ending, e.measured,
    (e.numbers).calendar, case when e.is_window then _window_seconds(e.numbers, p_now) end,
    case when e.is_window then greatest(
      _window_remembered(e.numbers, p_now), _window_remembered(e.own_numbers, p_now),
      e.longest) end,
    e.admitted, case when e.is_shadow then e.tokens_now end, case when e.is_shadow then e.slots_now end,
    case when e.pools is not null then (e.numbers).max end, e.pools, e.rises_at, null::float8,
    -- as many as the next job of its partition takes
    case when e.reserved_for is not null then (select _takes(q.limiter_ids, e.id) from partitions q where q.id = e.reserved_for) end
  from (
    select x.*, (x.numbers).shadow is true as is_shadow,
      case when x.by_tokens then case
        -- a halted bucket keeps its tokens
        when (x.numbers).rate <= 0 and not x.is_window then coalesce((x.brought).tokens, x.tokens)
        when x.is_window then _window_left(x.spent, x.numbers, p_now)
        else _throttle_tokens(
          coalesce((x.brought).tokens, x.tokens), coalesce((x.brought).refilled_at, x.refilled_at), x.numbers, p_now)
        end end as tokens_now,
      case when x.by_tokens then null
        when x.cap is null then 2147483647
        else greatest(x.cap - greatest(x.in_flight + x.ending, 0), 0) end as slots_now
    from (
      select l.id, l.gate, l.kind, case when l.laned then 1 else l.breadth end as breadth, l.position, l.scope_key,
        l.in_flight, l.admitted, l.by_tokens,
        case when l.reserved_until > p_now then l.reserved_for end as reserved_for, l.reserved_until,
        case when l.by_tokens and not _is_window(l.numbers) and p_turned_at > l.refilled_at
          then _throttle_brought_to(l, p_now, _context_of(l)) end as brought,
        case when l.longest_until > p_now then l.longest end as longest,
        l.tokens, l.refilled_at, l.spent, l.numbers as own_numbers, n.numbers,
        _is_window(n.numbers) as is_window,
        -- once a second
        case when l.kind = 'ahead' and (abs(extract(epoch from p_now - l.sampled_at)) >= 1) is not false then coalesce(
          (l.released - l.sampled_released) / greatest(extract(epoch from p_now - l.sampled_at)::float8, 1), 0) end as measured,
        case when l.kind <> 'ahead' or p_bounded then _gate_cap(l, n.numbers, w.pools, p_now) end as cap,
        w.pools,
        case when w.pools is not null
            and _local_cap(l, p_now) < _shares_in_all((n.numbers).max, w.pools)
          then _local_rises_at(l, p_now) end as rises_at,
        case when l.kind = 'ahead' and p_bounded
          then cardinality(_still_ending(l.ending)) else 0 end as ending
      from (select case when p_set is null then l.numbers else jsonb_populate_record(l.numbers, p_set) end as numbers) n
      -- counted once: the cap and what the limiter remembers of it must be of the same moment
      cross join lateral (
        select case when _goes_by_pools(l.kind, n.numbers) then _live_pools(l.policy_id) end as pools offset 0) w
      offset 0
    ) x offset 0   -- each is worked out once, though two columns read it
  ) e;
$$;

-- How many jobs may be in flight at once under this gate, by `numbers` (its own, or an override's). Null: no bound, as for
-- gates that count tokens. A new kind of cap is a line here.
--
--   p_pools   of a gate that goes by them: how many live worker pools have a task of the policy
create or replace function _gate_cap(
  limiter limiters, numbers gate_numbers,
  p_pools int, p_now timestamptz
) returns int language sql stable as $$
  select case when (numbers).per_worker then least(
    _shares_in_all((numbers).max, p_pools), _local_cap(limiter, p_now))
  else case limiter.kind
    when 'concurrency' then (numbers).max
    when 'adaptive_concurrency' then least(
      greatest(coalesce(limiter.current_max, (limiter.numbers).initial_max), (numbers).min,
        case when limiter.in_flight = 0 then (numbers).initial_max else 0 end),   -- the safety valve
      coalesce((numbers).max, 2147483647))
    when 'ahead' then _ahead_cap(limiter, p_now)
    when 'throttle' then null
    else 0   -- of a kind that nobody knows, nothing goes
  end end;
$$;

-- Whether a cap goes by the live worker pools. Then its room grows without a release, and who was denied is looked at again when
-- there are more of them (_with_new_shares).
create or replace function _goes_by_pools(kind text, numbers gate_numbers) returns boolean language sql immutable as $$
  select (numbers).per_worker is true;
$$;

-- How many jobs of a policy may be in flight: one for each worker slot, and the jobs ahead. So workers never wait for a
-- tick. Null: no bound.
--
-- By default as many are ahead as the workers finish in a certain time: a fixed number of long jobs makes a new tenant's first
-- job wait for all of them. Worker slots do not become free evenly. After the first one, the next may take as long as a job runs.
-- So if jobs run for longer than that time, none is ahead. Nor is one while a job of a long task waits, see _stop_at_long_jobs.
--
-- Some jobs wait in Graphile Worker for something else than a worker slot: their named queue, a worker that accepts their flags,
-- or one that has their task. They would keep all other jobs out. So if a policy may have such jobs, they are counted, and as
-- many others go beside them.
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

-- How many jobs of a policy its workers finish in a second: the greater of how many they finished in the last measured second,
-- and how many a second since then. So it grows within a few passes when workers start. If many jobs end together, the second
-- number is too high. So the result is at most what the slots can do at the mean duration of the policy's shortest task.
--
--   p_slots      of the worker pools; null: not known
--   p_shortest   the mean duration of the policy's shortest task, in seconds; null: not known
create or replace function _pace(
  ahead limiters, p_slots int, p_shortest float8, p_now timestamptz
) returns float8 language sql immutable as $$
  select least(
    p_slots / nullif(p_shortest, 0),
    greatest(
      ahead.finished_per_second,
      (ahead.released - ahead.sampled_released)
        / greatest(abs(extract(epoch from p_now - ahead.sampled_at))::float8, 0.1)));
$$;

-- How many of a policy's jobs in flight use no slot although slots may be free, at most 100. They wait in Graphile Worker for
-- their named queue, for a worker that takes their flags, or for one that has their task.
--
-- A job behind another of its queue certainly waits. Of the others nobody knows: workers do not say which flags they refuse,
-- and a queue may be busy with a job of somebody else. So a job counts if it has waited for longer than jobs ahead do, and
-- no job of its task and flags runs. If one runs, the job waits for a slot like others.
create or replace function _waiting_elsewhere(
  p_policy_id int, p_after float8, p_now timestamptz
) returns int language plpgsql stable as $$
begin
  return (
    with job as materialized (
      select j.id, j.queue_name, j.locked_at is not null as runs, f.admitted_at,
        j.task_identifier || ' ' || coalesce((
          select string_agg(k, ' ' order by k) from jsonb_object_keys(j.flags) k
          where not _is_own_flag(k)), '') || ' ' || (j.queue_name is not null) as kind
      from in_flight_jobs f
      cross join lateral (   -- one look at the index for each job
        select * from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
      where f.policy_id = p_policy_id
    ),
    placed as (
      select j.*, j.queue_name is not null
          and row_number() over (partition by j.queue_name order by j.runs desc, j.id) > 1 as is_behind,
        bool_or(j.runs) over (partition by j.kind) as kind_runs
      from job j
    )
    select least(count(*), 100) from placed p
    where not p.runs and (p.is_behind
      or (not p.kind_runs and p.admitted_at < p_now - make_interval(secs => p_after))));
end
$$;

-- How many jobs the worker pools that have a task of this policy run at once. Null: no pool that lives has said so.
--
--   assumed   the same, or 100 if it is not known: without a number of their own, such workers would get no job at all
--   alike     whether each of these pools has all tasks of the policy
--   pools     how many they are
--   tasks     how many tasks the policy has
--   behind    how far the clock of any worker pool is behind, at most, see _clocks_behind
--
-- It returns a set, of one row, so that PostgreSQL inlines it.
create or replace function _worker_slots(p_policy_id int)
returns table (slots int, assumed int, alike boolean, pools int, tasks int, behind interval) language sql stable rows 1 as $$
  select sum(w.slots) filter (where w.tasks && t.tasks)::int,
    coalesce(sum(w.slots) filter (where w.tasks && t.tasks)::int, 100),
    coalesce(bool_and(w.tasks @> t.tasks) filter (where w.tasks && t.tasks), true),
    count(*) filter (where w.tasks && t.tasks)::int,
    coalesce(max(cardinality(t.tasks)), 0), greatest(max(w.clock_behind), '0')
  from (
    select array_agg(x.task_identifier) as tasks
    from policy_tasks x where x.policy_id = p_policy_id
  ) t
  left join workers w on w.stale_at > clock_timestamp();
$$;

-- Those of these released jobs that Graphile Worker still has as they were at their end. A job that runs again counts as in
-- flight.
create or replace function _still_ending(p_job_ids bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if p_job_ids = '{}' then
    return p_job_ids;
  end if;
  return array(
    select u.id from unnest(p_job_ids) u (id)
    cross join lateral (   -- one look at the index for each job
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null limit 1) j
    where not exists (
      select from in_flight_jobs f where f.job_id = u.id));
end
$$;

-- What these limiters have left at `p_now`, as _rooms_of says it, for passes and the router. Most policies have no
-- override, and the query that looks for overrides would take half of the time.
create or replace function _limiters_of_pass(
  p_policy_id int, p_limiters limiters[], p_now timestamptz, p_bounded boolean
) returns room_before[] language plpgsql stable as $$
begin
  if exists (select from overrides o where o.policy_id = p_policy_id) or exists (select from unnest(p_limiters) l where l.shared) then
    return array(
      select n from _rooms_of(
        array(select l.id from unnest(p_limiters) l), p_now, p_bounded) n);
  end if;
  return array(
    select n from unnest(p_limiters) l
    cross join lateral _room_of(l, null, null, p_now, p_bounded) n);
end
$$;

-- What a limiter has left that its caller has locked and may have changed in memory, as _room_of says it. Most are caps and
-- buckets with the numbers of their gate. For those the query of _room_of takes six times as long as what it asks.
--
--   p_ahead_cap   how many jobs may be in flight, if it is the ahead bound; null: it is asked here
create or replace function _room_for_few(
  p_limiter limiters, p_is_overridden boolean, p_bounded boolean, p_ahead_cap int, p_now timestamptz
) returns room_before language plpgsql stable as $$
declare
  v_set jsonb;
  v_turned_at timestamptz;
  v_room room_before;
begin
  if p_is_overridden or (p_limiter).shared then
    select o.set, o.turned_at into v_set, v_turned_at from _override_now((p_limiter).policy_id, p_limiter, p_now) o;
  end if;
  if v_set is not null or v_turned_at is not null or (p_limiter).reserved_until > p_now
    or ((p_limiter).numbers).shadow or _goes_by_pools((p_limiter).kind, (p_limiter).numbers) or _is_window((p_limiter).numbers) then
    select n.* into v_room from _room_of(p_limiter, v_set, v_turned_at, p_now, p_bounded) n;
    return v_room;
  end if;
  v_room.id := (p_limiter).id;
  v_room.kind := (p_limiter).kind;
  v_room.breadth := case when (p_limiter).laned then 1 else (p_limiter).breadth end;
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
    v_room.cap := case when p_bounded then coalesce(p_ahead_cap, _ahead_cap(p_limiter, p_now)) end;
    v_room.ending := case when p_bounded and (p_limiter).ending <> '{}' then cardinality(_still_ending((p_limiter).ending)) else 0 end;
    if (abs(extract(epoch from p_now - (p_limiter).sampled_at)) >= 1) is not false then   -- measured once a second
      v_room.measured := coalesce(((p_limiter).released - (p_limiter).sampled_released)
        / greatest(extract(epoch from p_now - (p_limiter).sampled_at)::float8, 1), 0);
    end if;
  else
    v_room.cap := _gate_cap(p_limiter, (p_limiter).numbers, null, p_now);
  end if;
  v_room.slots := case when v_room.cap is null then 2147483647
    else greatest(v_room.cap - greatest((p_limiter).in_flight + coalesce(v_room.ending, 0), 0), 0) end;
  return v_room;
end
$$;

-- How far the clocks of the worker pools are behind, at most. Under useNodeTime, such a worker does not see a job before its
-- clock says now.
create or replace function _clocks_behind() returns interval language plpgsql stable as $$
begin
  return (
    select greatest(max(w.clock_behind), '0') from workers w
    where w.stale_at > clock_timestamp());
end
$$;
