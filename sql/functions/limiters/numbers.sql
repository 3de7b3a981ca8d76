-- Limiters are made, and get new numbers.

-- Makes the limiters that these arrivals name, one for each partition, and that do not exist yet.
--
--   limiters   of each partition the ids, from narrow to broad. A limiter of which its jobs take several slots is there as often
--   made_*     the limiters it has made, as gate and scope key
--
-- `take` may make the same limiter at the same time. The second of two transactions waits for the first one, as long as
-- lock_timeout allows, and then uses its limiter. A second limiter would give the tokens twice.
create or replace function _make_limiters(
  p_policy_id int, p_changed arrivals[], p_now timestamptz,
  out limiters jsonb, out made_gates text[], out made_keys text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _route_partitions; `take` calls it first, and the session keeps the plan
declare
  v_overridden boolean;
  v_shares boolean;
  v_missed boolean;
begin
  select exists (select from overrides o where o.policy_id = p_policy_id), p.shared or p.shared_ids <> '{}'
  into v_overridden, v_shares from policies p where p.id = p_policy_id;
  if v_shares then
    -- The danger: another definition of a shared limit does not see the limiter that this makes. The cure: it waits
    perform from policies p
    where p.shared and (p.id = p_policy_id or p.id = any((select u.shared_ids from policies u where u.id = p_policy_id)::int[]))
    order by p.id for share;
    p_changed := array(
      select jsonb_populate_record(c, jsonb_build_object('limits', (
        select jsonb_agg(case when x.value ? 'shared' then _of_shared(x.value, c.key) else x.value end)
        from jsonb_array_elements(c.limits) x)))
      from unnest(p_changed) c);
  end if;
  with wanted as materialized (
    select c.partition_id, o.id as owner_id, o.id <> p_policy_id or (v_shares and l.value ? 'owner') as is_shared,
      c.id as arrival_id, c.version as arrival_version,
      l.value ->> 'gate' as gate, l.value ->> 'kind' as kind, _breadth(l.value ->> 'scope') as breadth,
      (l.value ->> 'position')::smallint as position, (l.value ->> 'cost')::int as takes,
      jsonb_populate_record(null::gate_numbers, l.value) as numbers,
      case when l.value ->> 'scope' = 'partition' then c.context end as context,
      _scope_key(l.value ->> 'scope', l.value ->> 'key', c.key) as scope_key
    from unnest(p_changed) c cross join lateral jsonb_array_elements(c.limits) l
    cross join lateral (
      select case when v_shares then coalesce((l.value ->> 'owner')::int, p_policy_id) else p_policy_id end as id) o
  ),
  limiter as materialized (
    select distinct on (w.owner_id, w.gate, w.scope_key) w.* from wanted w
    order by w.owner_id, w.gate, w.scope_key, w.arrival_version desc, w.arrival_id desc
  ),
  there as materialized (
    -- "limit 1" makes it one look at the index each: else the planner read all limiters of the policy
    select l.id, l.policy_id, l.gate, l.scope_key from limiter w
    cross join lateral (
      select x.id, x.policy_id, x.gate, x.scope_key from limiters x
      where x.policy_id = w.owner_id and x.gate = w.gate and x.scope_key = w.scope_key limit 1
    ) l
  ),
  made as (
    insert into limiters (
      policy_id, gate, scope_key, kind, breadth, shared, position, numbers, tokens, refilled_at, current_max, arrival_id,
      version)
    select w.owner_id, w.gate, w.scope_key, w.kind, w.breadth, w.is_shared, w.position, _valid_numbers(w.numbers),
      case when (w.numbers).rate is null then null
        when v_overridden or v_shares
          then _first_tokens(w.owner_id, w.gate, w.scope_key, w.numbers, w.context, p_now)
        else _throttle_capacity(w.numbers) end,
      case when (w.numbers).rate is not null then p_now end, (w.numbers).initial_max,
      case when w.is_shared then 0 else w.arrival_id end, case when w.is_shared then 0 else w.arrival_version end
    from limiter w
    where not exists (
      select from there t where t.policy_id = w.owner_id and t.gate = w.gate and t.scope_key = w.scope_key)
    on conflict (policy_id, gate, scope_key) do nothing
    returning id, policy_id, gate, scope_key
  ),
  limiter_id as materialized (select * from there union all select * from made)
  select
    (select jsonb_object_agg(x.partition_id, x.ids) from (
      -- shared ones in the same order in all policies
      select w.partition_id, array_agg(i.id order by w.breadth, case when w.is_shared then 100000 + w.owner_id else w.position end)
        as ids
      from wanted w join limiter_id i on i.policy_id = w.owner_id and i.gate = w.gate and i.scope_key = w.scope_key
      left join lateral generate_series(1, w.takes) n on true
      where w.partition_id is not null   -- that of `take`
      group by w.partition_id) x),
    array_agg(m.gate), array_agg(m.scope_key),
    (select count(*) from limiter) > (select count(*) from limiter_id)
  into limiters, made_gates, made_keys, v_missed from made m;
  if v_missed then
    -- this statement cannot see what was made after it began: the next one can
    select m.limiters, _make_limiters.made_gates || m.made_gates, _make_limiters.made_keys || m.made_keys
    into limiters, made_gates, made_keys
    from _make_limiters(p_policy_id, p_changed, p_now) m;
  end if;
end
$$;

-- A limit that names a shared limit, with that limit's numbers and number (`owner`). It counts over a key in any case, because its
-- partitions are of several policies. Raises if nobody has declared it: the arrival stays until somebody has.
create or replace function _of_shared(p_limit jsonb, p_key text) returns jsonb language plpgsql stable as $$
declare
  v_limit jsonb := (
    select (p_limit || (p.definition #> '{gates,0,values}'))
      || jsonb_build_object('owner', p.id, 'kind', p.definition #> '{gates,0,kind}')
      || case when p_limit ->> 'scope' = 'partition' then jsonb_build_object('scope', 'key', 'key', p_key) else '{}' end
    from policies p where p.name = p_limit ->> 'gate' and p.shared);
begin
  if v_limit is null then
    raise exception 'dispatch_policy: nobody has declared the shared limit %: start a worker whose policies name it',
      quote_literal(p_limit ->> 'gate') using errcode = 'DPPOL';
  end if;
  return v_limit;
end
$$;

-- A shared limit has got another definition: all of its limiters get the numbers at once. A locked one waits for a pass of the
-- limit, so that no open transaction keeps a process from its start.
create or replace function _redefine_shared(p_policy policies, p_now timestamptz) returns void language plpgsql as $$
declare
  v_ids bigint[] := array(
    select l.id from limiters l where l.policy_id = (p_policy).id and l.shared order by l.id for no key update skip locked);
begin
  perform _change_shared(p_policy, v_ids, p_now);
  insert into freed (policy_id, limiter_id)
  select l.policy_id, l.id from limiters l where l.policy_id = (p_policy).id and l.shared and l.id <> all (v_ids);
end
$$;

-- Gives these limiters of a shared limit, which the caller has locked, the numbers of its definition, if they have older ones.
create or replace function _change_shared(p_policy policies, p_ids bigint[], p_now timestamptz) returns void language plpgsql as $$
begin
  perform _change_limiters(p_policy, jsonb_object_agg(l.id, jsonb_build_object(
      'arrival_id', 0, 'version', (p_policy).generation, 'limit', _of_shared(jsonb_build_object(
        'gate', l.gate, 'position', l.position, 'scope', case l.breadth when 1 then 'key' else 'policy' end), null))), '{}', p_now)
  from limiters l where l.id = any(p_ids) and l.shared and l.version < (p_policy).generation having count(*) > 0;
end
$$;

-- Makes a policy's ahead bound. Returns its id; null: it is there.
create or replace function _make_ahead(p_policy_id int) returns bigint language plpgsql as $$
declare
  v_id bigint;
begin
  insert into limiters (policy_id, gate, scope_key, kind, breadth, position)
  values (p_policy_id, 'ahead', '', 'ahead', 3, 32767) on conflict (policy_id, gate, scope_key) do nothing
  returning id into v_id;
  return v_id;
end
$$;

-- Of these limiters those over one partition count over its lanes from now on. It waits for locked ones.
create or replace function _count_over_lanes(p_ids bigint[]) returns void language plpgsql as $$
declare
  v_ids bigint[];
begin
  if p_ids = '{}' then
    return;
  end if;
  v_ids := array(
    select l.id from limiters l where l.id = any(p_ids) and l.breadth = 0 and not l.laned order by l.id for no key update);
  update limiters l set laned = true where l.id = any(v_ids);
end
$$;

-- The numbers of a gate, if a pass can reckon with them. Others would fail each pass of the policy: so they fail the arrival that
-- brings them, and no other. It is no CHECK of `limiters`: PostgreSQL parses those anew for each statement that writes a row.
create or replace function _valid_numbers(numbers gate_numbers) returns gate_numbers language plpgsql stable as $$
declare
  v_wrong text := case
    when not (numbers.per between 1e-12 and 1e12) then 'per is ' || numbers.per || ', expected seconds between 1e-12 and 1e12'
    when not (abs(numbers.rate) <= 1e12) then 'rate is ' || numbers.rate || ', expected a number up to 1e12'
    when numbers.max < 0 then 'max is ' || numbers.max || ', expected 0 or more'
    when split_part(numbers.calendar, ' ', 1) not in ('minute', 'hour', 'day', 'week', 'month')
      then 'calendar is "' || numbers.calendar || '", expected minute, hour, day, week or month and a time zone' end;
begin
  if v_wrong is not null then
    raise exception 'dispatch_policy: the numbers of a gate: %', v_wrong using errcode = 'DPARG';
  end if;
  if numbers.calendar is not null then
    perform timestamptz '2000-01-01Z' at time zone split_part(numbers.calendar, ' ', 2);   -- raises if it is not known
  end if;
  return numbers;
end
$$;

-- How many tokens a bucket has when it is made: it is full, by the limit in force. A halt brings nothing, and takes nothing.
-- A window has none: nothing was spent in it.
-- `p_context` is that of its partition; null: it counts over more than one.
create or replace function _first_tokens(
  p_policy_id int, p_gate text, p_scope_key text, p_numbers gate_numbers, p_context jsonb,
  p_now timestamptz
) returns float8 language plpgsql stable as $$
declare
  v_numbers gate_numbers := jsonb_populate_record(p_numbers, (
    select o.set from overrides o
    where o.id = _override_id_at(p_policy_id, p_gate, p_scope_key, p_context, p_now, p_now)));
begin
  return _throttle_capacity(
    case when v_numbers.rate > 0 and not _is_window(p_numbers) then v_numbers else p_numbers end);
end
$$;

-- Locks these limiters ascending, and gives them their new numbers. It waits for a lock only for a moment (lock_timeout). If a
-- transaction keeps one locked, this raises lock_not_available, and the detail names the partitions whose arrivals concern it.
-- Locks and changes are in one subtransaction: a row that is locked in another one costs a multixact.
--
--   p_changes   by limiter: its `limit` by the definition, the `arrival_id` and `version` that bring it, and the `context` that
--               its partition had until now, if the limits by context differ for the new one
create or replace function _change_limiters(
  p_policy policies, p_changes jsonb,
  p_arrivals arrivals[], p_now timestamptz
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_ids bigint[] := array(select k::bigint from jsonb_object_keys(p_changes) k);
  v_free bigint[];
  v_partition_ids uuid[];
  v_overridden boolean := exists (
    select from overrides o where o.policy_id = (p_policy).id);
begin
  perform from limiters l where l.id = any(v_ids) order by l.id for no key update;
  with change as (
    select c.key::bigint as id, (c.value ->> 'arrival_id')::bigint as arrival_id, (c.value ->> 'version')::int as version,
      c.value #>> '{limit,kind}' as kind, nullif(c.value -> 'context', 'null') as context,
      _breadth(c.value #>> '{limit,scope}') as breadth,
      (c.value #>> '{limit,position}')::smallint as position, n.numbers, (n.numbers).rate is not null as by_tokens,
      _is_window(n.numbers) as is_window
    from jsonb_each(p_changes) c
    cross join lateral (
      select _valid_numbers(jsonb_populate_record(null::gate_numbers, c.value -> 'limit')) as numbers) n
  ),
  changed as (
    update limiters l set
      kind = c.kind, breadth = c.breadth, position = c.position, numbers = c.numbers,
      -- the tokens that the old rate has brought stay, within the new capacity
      tokens = case when c.by_tokens then least(
        case when l.by_tokens then _throttle_left(
          l, p_now, v_overridden, coalesce(c.context, _context_of(l))) else l.tokens end,
        _throttle_capacity(c.numbers)) else l.tokens end,
      -- the tokens that a bucket lacks to be full count as spent now
      spent = case when not l.by_tokens or not c.by_tokens or (_is_window(l.numbers) and c.is_window) then l.spent
        when c.is_window then _window_spend('{}', 1, 1,
          _throttle_capacity(l.numbers)
            - _throttle_left(
              l, p_now, v_overridden, coalesce(c.context, _context_of(l))), p_now)
        else '{}' end,
      -- the definition before may come back: its window's spendings are remembered for a day plus its length
      (longest, longest_until) = (
        select w.seconds, p_now + make_interval(days => 1, secs => w.seconds) from (
          select case when _is_window(l.numbers) then greatest(
            _window_remembered(l.numbers, p_now), case when l.longest_until > p_now then l.longest end) end as seconds) w),
      refilled_at = _throttle_filled_at(l.refilled_at, p_now),
      current_max = case when (c.numbers).initial_max is not null then least(
        greatest(coalesce(l.current_max, (c.numbers).initial_max), (c.numbers).min), (c.numbers).max) end,
      arrival_id = c.arrival_id, version = c.version
    from change c
    where l.id = c.id and l.id = any(v_ids)
      and (c.version, c.arrival_id) >= (l.version, l.arrival_id)   -- equal: `take` made it, and changes it
    returning l.id
  )
  insert into freed (policy_id, limiter_id)
  select (p_policy).id, c.id from changed c
  where exists (select from partitions q where q.blocked_on = c.id);
exception when lock_not_available or deadlock_detected then
  v_free := array(
    select l.id from limiters l
    where l.id = any(v_ids) order by l.id for no key update skip locked);
  v_partition_ids := array(
    select distinct a.partition_id from unnest(p_arrivals) a
    cross join lateral jsonb_array_elements(a.limits) x
    join limiters l
      on l.gate = x.value ->> 'gate'
      and l.scope_key = _scope_key(x.value ->> 'scope', x.value ->> 'key', a.key)
    where l.id = any(v_ids) and l.id <> all (v_free));
  raise exception 'dispatch_policy: limiters that get new numbers are locked'
    using errcode = 'lock_not_available', detail = 'partitions ' || v_partition_ids::text;
end
$$;

-- What a throttle has left at `now`. A bucket goes by the numbers that were in force until then. Overrides may have changed them
-- (`overridden`), also for its partition's context. A window goes by its own. It has no query, so that PostgreSQL inlines it.
create or replace function _throttle_left(
  limiter limiters, now timestamptz, overridden boolean, context jsonb
) returns float8 language sql stable as $$
  select case
    when _is_window(limiter.numbers)
      then _window_left(limiter.spent, limiter.numbers, now)
    when overridden then (_throttle_brought_to(limiter, now, context)).tokens
    else _throttle_tokens(
      limiter.tokens, limiter.refilled_at, limiter.numbers, now)
    end;
$$;

-- A bucket brought to `p_now`. Each stretch of time since it was last filled counts by the numbers that were in force
-- then. So a rate brings nothing for the time before it. `p_context` is that of its partition at that time (_context_of).
create or replace function _throttle_brought_to(
  limiter limiters, p_now timestamptz, p_context jsonb
) returns limiters language plpgsql stable as $$
declare
  v_at timestamptz;
  v_numbers gate_numbers;
begin
  for v_at in
    select p_now where p_now > limiter.refilled_at
    union
    select t.at from _overrides_by(limiter.policy_id, p_now) o
    cross join unnest(array[o.began_at, o.until_at]) t (at)
    where o.gate = limiter.gate and (o.scope_key = limiter.scope_key or o.scope_key is null)
      and (o.context is null or p_context @> o.context)
      and t.at > limiter.refilled_at and t.at < p_now
    order by 1
  loop
    v_numbers := jsonb_populate_record(limiter.numbers, (
      select o.set from overrides o
      where o.id = _override_id_at(
        limiter.policy_id, limiter.gate, limiter.scope_key, p_context, limiter.refilled_at, p_now)));
    -- a halt brings nothing, and takes nothing
    if (v_numbers).rate > 0 then
      limiter.tokens := _throttle_tokens(limiter.tokens, limiter.refilled_at, v_numbers, v_at);
    end if;
    limiter.refilled_at := v_at;
  end loop;
  return limiter;
end
$$;

-- Whether a definition gives a limiter other numbers than it has. Those of a shared limit change with its own definition.
create or replace function _numbers_differ(
  limiter limiters, p_limit jsonb
) returns boolean language sql stable as $$
  -- a bare expression, so that it is inlined: as a query it took 20 us for each limiter of each arrival
  select not p_limit ? 'shared' and (limiter.kind, limiter.breadth, limiter.position, limiter.numbers)
    is distinct from (
      p_limit ->> 'kind', _breadth(p_limit ->> 'scope'), (p_limit ->> 'position')::smallint,
      jsonb_populate_record(null::gate_numbers, p_limit));
$$;
