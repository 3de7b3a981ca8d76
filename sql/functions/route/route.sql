-- The router: arrivals become rows of partitions and limiters.

-- Turns arrivals into partitions and limiters. A policy has one router at a time. Tick loops call it in a transaction of its
-- own; SQL tick and SQL admit go on to admit in the same one.
--
-- Returns -1 if another router is at work: the caller comes back. Else it returns how many arrivals it consumed, one more if
-- overrides are still to be announced, and of a policy that is switched off the partitions that it woke as well. `p_max` or more
-- means call again. 0 means that nothing is left that it can do: arrivals of locked rows stay for a later routing step.
--
-- It never waits for a partition: it skips the arrivals of a locked one, and reads on. Limits come after, in a later statement:
-- limiters ascending, and only those whose numbers differ and come from an earlier arrival.
create or replace function _route(
  p_policy text, p_now timestamptz, p_max int
) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- to plan takes longer than to run
set lock_timeout = '2s'
as $$
declare
  v_policy policies;
  v_ids bigint[];
  v_partition_ids uuid[];
  v_pause_ids bigint[];
  v_left_ids bigint[];
  v_half int;
  v_older bigint[];
  v_newest bigint[];
  v_full boolean;
  v_is_cut boolean := false;   -- there are more, because their contexts fill a portion
  v_has_all boolean;   -- no arrival that there was is missing in the batch
  v_last bigint;   -- the newest arrival that has no older one which was not read
  v_after bigint := 0;
  v_consumed int := 0;
begin
  perform _check_isolation('routing');
  select * into v_policy from policies p where p.name = p_policy;
  if v_policy.id is null then
    perform _unknown_policy(p_policy);
  end if;
  if not _try_lock_turn(v_policy.id, 'route') then
    return -1;
  end if;
  -- mostly one batch: another follows if one was full, and part of it had to be left; each has all stops
  for v_batch in 1..10 loop
    select array_agg(a.id) filter (where a.is_read), array_agg(distinct a.partition_id) filter (where a.is_read),
      array_agg(a.id) filter (where a.is_read and a.is_pause), not bool_and(a.is_read), count(*) = p_max
    into v_ids, v_partition_ids, v_pause_ids, v_is_cut, v_full from (
      select a.id, a.partition_id, a.pause is not null as is_pause,
        _portion(sum(octet_length(a.context::text)) over (
          order by a.id rows between unbounded preceding and 1 preceding)) = 0 as is_read
      from (
        select x.id, x.partition_id, x.pause, x.context from arrivals x
        where x.policy = p_policy and x.id > v_after order by x.id limit p_max) a
    ) a;
    exit when v_ids is null;
    v_full := v_full or v_is_cut;
    v_has_all := v_batch = 1 and not v_full;
    if not v_has_all then
      v_last := (select max(u.id) from unnest(v_ids) u (id));
      if v_batch = 1 then
        -- The older half stays. As many of the newest take the place of the others, so that a quiet tenant's job is soon routed
        -- beside a million older arrivals. Work may come in any order, but an end counts for a breaker in its turn.
        v_half := cardinality(v_ids) / 2;
        v_older := array(select u.id from unnest(v_ids) u (id) order by u.id limit cardinality(v_ids) - v_half);
        v_newest := array(
          select a.id from (
            select a.id, _portion(sum(octet_length(a.context::text)) over (
              order by a.id desc rows between unbounded preceding and 1 preceding)) as portion
            from (
              select x.id, x.context from arrivals x
              where x.policy = p_policy and x.id > v_older[cardinality(v_older)] and x.pause is null and x.outcome is null
              order by x.id desc limit v_half) a
          ) a
          where a.portion = 0);
        if cardinality(v_newest) = v_half then
          v_ids := v_older || v_newest;
          v_last := v_older[cardinality(v_older)];
        end if;
      end if;
      -- Without a stop that came later, its partition's jobs would go although somebody has paused it.
      v_ids := v_ids || array(
        select a.id from arrivals a
        where a.policy = p_policy and a.pause is not null and (a.id in (select unnest(v_ids))) is not true);
      select array_agg(distinct a.partition_id), array_agg(a.id) filter (where a.pause is not null)
      into v_partition_ids, v_pause_ids
      from arrivals a where a.policy = p_policy and a.id = any(v_ids);
    end if;
    v_left_ids := _route_batch(
      v_policy, v_ids, v_partition_ids, v_pause_ids, coalesce(p_now, clock_timestamp()), v_has_all);
    v_consumed := v_consumed + cardinality(v_ids) - cardinality(v_left_ids);
    exit when v_left_ids = '{}' or not v_full or v_consumed >= p_max;
    v_consumed := v_consumed + _merge_arrivals(p_policy, v_left_ids);
    v_after := v_last;
  end loop;
  if v_is_cut and v_consumed > 0 then
    v_consumed := greatest(v_consumed, p_max);
  end if;
  if v_policy.max_pending_in_all is not null then
    perform _add_up_pending(p_policy);
  end if;
  if not v_policy.enabled then
    return v_consumed + _wake_all(v_policy, p_max);
  end if;
  -- two looks, each by its index: there may be an override for each of 10,000 accounts
  if exists (
    select from overrides o
    where o.policy_id = v_policy.id and least(o.announce_at, o.announce_again_at) <= coalesce(p_now, clock_timestamp())
  ) or exists (
    select from overrides o where o.policy_id = v_policy.id and o.to_announce <> '{}'
  ) then
    return v_consumed + _announce_overrides(v_policy, coalesce(p_now, clock_timestamp()))::int;
  end if;
  return v_consumed;
end
$$;

-- Routes these arrivals of these partitions, all at once if that is possible. Returns the ids of those it left. These are
-- arrivals of partitions that another session has locked, or whose limits are still to come; those that a resume is about to
-- delete; those that give a locked limiter other numbers, and those that raise an error.
--
--   p_has_all   these are all arrivals that there are
--
-- One bad arrival would stop its whole policy. So it finds such arrivals by trying the others in halves, level by level.
-- The number of tries has a bound, and the last of them try single partitions drawn by lot. So each routing step gets
-- further, however many are bad.
create or replace function _route_batch(
  p_policy policies, p_ids bigint[], p_partition_ids uuid[], p_pause_ids bigint[],
  p_now timestamptz, p_has_all boolean
) returns bigint[] language plpgsql
set lock_timeout = '20ms' as $$
declare
  v_parts jsonb := '[]';   -- partitions that are still to be tried, in groups
  v_partition_ids uuid[] := p_partition_ids;
  v_ids bigint[] := p_ids;
  v_tries int := 0;
  v_is_done boolean := false;   -- the first try has routed all
  v_known known[];
  v_our_ids uuid[];
  v_bare_ids uuid[];
  v_our_pause_ids bigint[];
  v_arrivals arrivals[];
  v_detail text;
  v_half int;
  v_busy_ids uuid[];
begin
  loop
    v_tries := v_tries + 1;
    begin
      -- locks and changes in one subtransaction: a row that is locked outside and changed inside costs a multixact
      if v_tries > 1 then
        v_ids := array(
          select a.id from arrivals a
          where a.policy = (p_policy).name and a.id = any(p_ids)
            and (a.partition_id in (select unnest(v_partition_ids))) is true);
      end if;
      v_known := _lock_known(p_policy, v_partition_ids, p_now);
      v_our_ids := array(select k.id from unnest(v_known) k);
      if cardinality(v_our_ids) < cardinality(v_partition_ids) then
        -- partitions that others have locked wait for the next routing step; those that do not exist are made here
        v_our_ids := v_our_ids || array(
          select u.id from unnest(v_partition_ids) u (id)
          -- by hash: PostgreSQL, which takes an empty table's statistics for true, compared each with each
          where (u.id in (
            select p.id from partitions p where p.id = any(v_partition_ids))) is not true);
      end if;
      if not p_has_all then
        -- The danger: somebody reschedules or removes a job that is not routed yet. That arrival has no limits. If it is routed
        -- before the job's own, it makes the partition, and the partition's jobs pass no gate. That of a changed context has
        -- limits but no shard, and the partition would stay in the default one. The cure: they wait for the job's arrival.
        v_bare_ids := array(
          select a.partition_id from arrivals a
          where a.policy = (p_policy).name and a.id = any(v_ids)
          group by a.partition_id
          having not bool_or(a.limits is not null and a.shard is not null) and bool_or(a.pause is null and a.outcome is null));
        v_bare_ids := array(
          select u.id from unnest(v_bare_ids) u (id)
          where (u.id in (
            select q.id from partitions q
            where q.id = any(v_bare_ids) and q.arrival_id > 0)) is not true);
        if v_bare_ids <> '{}' then
          v_our_ids := array(
            select u.id from unnest(v_our_ids) u (id)
            where (u.id in (
              select a.partition_id from arrivals a
              where a.policy = (p_policy).name and a.limits is not null and a.shard is not null
                and (a.partition_id in (select unnest(v_bare_ids))) is true)) is not true);
        end if;
      end if;
      if p_pause_ids is not null then
        v_our_pause_ids := array(
          select a.id from arrivals a
          where a.policy = (p_policy).name and a.id = any(p_pause_ids) for update skip locked);
        v_our_ids := array(
          select u.id from unnest(v_our_ids) u (id)
          where u.id not in (
            select a.partition_id from arrivals a
            where a.policy = (p_policy).name and a.id = any(p_pause_ids) and a.id <> all (v_our_pause_ids)));
      end if;
      with consumed as (
        delete from arrivals a
        where a.policy = (p_policy).name and a.id = any(v_ids)
          -- by hash: compared with an array, 10,000 new partitions took half a second
          and (a.partition_id in (select unnest(v_our_ids))) is true
        returning a
      )
      select coalesce(array_agg(c.a), '{}') into v_arrivals from consumed c;
      perform _apply_arrivals(p_policy, v_arrivals, v_known, p_now);
      v_is_done := v_tries = 1 and cardinality(v_arrivals) = cardinality(v_ids);
    exception
      when insufficient_resources or disk_full or out_of_memory or admin_shutdown or crash_shutdown
        or invalid_transaction_state then raise;
      when others then
        get stacked diagnostics v_detail = pg_exception_detail;
        -- the partitions that _change_limiters names
        v_busy_ids := case when v_detail like 'partitions {_%}' then substr(v_detail, 12)::uuid[] end;
        if v_busy_ids is null and cardinality(v_partition_ids) = 1 then
          v_busy_ids := v_partition_ids;
          if sqlstate not in ('55P03', '40P01') then
            raise warning 'dispatch_policy: policy % cannot route the arrivals of partition %, and leaves them for later: %',
              quote_literal((p_policy).name), v_partition_ids[1], sqlerrm;
          end if;
        end if;
        if v_busy_ids is not null then
          v_partition_ids := array(
            select u.id from unnest(v_partition_ids) u (id) where (u.id in (select unnest(v_busy_ids))) is not true);
          v_parts := v_parts || case when v_partition_ids = '{}' then '[]' else jsonb_build_array(v_partition_ids) end;
        else
          v_half := cardinality(v_partition_ids) / 2;
          v_parts := v_parts || jsonb_build_array(v_partition_ids[:v_half], v_partition_ids[v_half + 1:]);
        end if;
    end;
    exit when v_parts = '[]' or v_tries >= 60;
    if v_tries < 45 then
      v_partition_ids := array(select x::uuid from jsonb_array_elements_text(v_parts -> 0) x);
      v_parts := v_parts - 0;
    else
      v_partition_ids := array(
        select x::uuid from jsonb_array_elements(v_parts) part cross join jsonb_array_elements_text(part) x
        order by random() limit 1);
    end if;
  end loop;
  if v_is_done then
    return '{}';
  end if;
  return array(
    select a.id from arrivals a where a.policy = (p_policy).name and a.id = any(p_ids));
end
$$;

-- Puts consumed arrivals into effect: partitions first, then limiters ascending, the order that all keep. The
-- caller has the router's turn, and has locked those partitions that exist.
create or replace function _apply_arrivals(
  p_policy policies, p_arrivals arrivals[],
  p_known known[], p_now timestamptz
) returns void language plpgsql as $$
declare
  v_made record;
  v_contexts jsonb;
  v_has_ends boolean := exists (select from unnest(p_arrivals) a where a.outcome is not null);
begin
  if (p_policy).keyed_scopes and v_has_ends then
    perform _lock_lanes(array(select distinct a.partition_id from unnest(p_arrivals) a where a.outcome is not null));
  end if;
  if exists (select from overrides o where o.policy_id = (p_policy).id and o.context_pair is not null) then
    -- The contexts before, of partitions whose arrivals change which limits by context apply to them. A rate brings nothing for
    -- the time before it, so their buckets are brought to now by the context before.
    v_contexts := (
      select jsonb_object_agg(q.id, q.context)
      from (
        select distinct on (a.partition_id) a.partition_id, a.id, a.version, a.context from unnest(p_arrivals) a
        where a.limits is not null order by a.partition_id, a.version desc, a.id desc
      ) n
      join partitions q
        on q.id = n.partition_id and (n.version, n.id) > (q.version, q.arrival_id)
      where n.context <> q.context and exists (
        select from unnest(
          _pairs_of(q.context) || _pairs_of(n.context)) u (pair)
        cross join lateral (
          select x.context from overrides x
          where x.policy_id = (p_policy).id and x.context_pair = u.pair offset 0   -- as in _override_now
        ) o
        where (q.context @> o.context) <> (n.context @> o.context)));
  end if;
  v_made := _route_partitions(p_policy, p_arrivals, p_known, false, p_now);
  perform _route_limits(
    p_policy, p_arrivals, p_known, v_made.made_gates, v_made.made_keys, v_contexts, p_now);
  if (p_policy).keyed_scopes then
    perform _count_over_lanes(array(
      select unnest(q.limiter_ids) from partitions q
      where q.laned and q.id = any(array(select a.partition_id from unnest(p_arrivals) a))));
  end if;
  if v_has_ends then
    perform _route_outcomes(p_policy, p_arrivals, p_now);
  end if;
end
$$;

-- Gives limiters that existed before (all but `p_made_*`) the numbers that the newest arrivals carry. A partition's own
-- limiters follow the partition. A shared one follows the newest arrival of any of its partitions. A changed limiter gets a
-- freed row. A partition's own limiter also changes if other limits by context apply to it now: `p_contexts` has the contexts
-- before, by partition.
--
-- An arrival that was staged earlier and commits late changes nothing, unless the later one came from another partition and
-- confirmed the numbers: to record each confirmation would write a busy limiter in every routing step.
--
-- A gate that has changed its kind under its name starts like a new one, but keeps what its bucket or window had left.
-- Otherwise two deployments that do not agree on the kind could fill it again and again.
create or replace function _route_limits(
  p_policy policies, p_arrivals arrivals[],
  p_known known[], p_made_gates text[], p_made_keys text[], p_contexts jsonb, p_now timestamptz
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_changes jsonb;
begin
  with newest as materialized (
    select distinct on (a.partition_id) a.* from unnest(p_arrivals) a
    -- not an arrival older than the partition's: a limiter does not record arrivals that merely confirmed its numbers
    left join unnest(p_known) k on k.id = a.partition_id
    where a.limits is not null and (k.id is null or (a.version, a.id) >= (k.version, k.arrival_id))
    order by a.partition_id, a.version desc, a.id desc
  ),
  wanted as materialized (
    select distinct on (l.gate, l.key) l.gate, l.key, l.declared, l.context, n.id as arrival_id, n.version
    from newest n
    cross join lateral (
      select x.value ->> 'gate' as gate, x.value as declared,
        _scope_key(x.value ->> 'scope', x.value ->> 'key', n.key) as key,
        case when x.value ->> 'scope' = 'partition' then p_contexts -> n.partition_id::text end as context
      from jsonb_array_elements(n.limits) x
    ) l
    where (l.gate, l.key) not in (select * from unnest(p_made_gates, p_made_keys))
    order by l.gate, l.key, n.version desc, n.id desc
  )
  select jsonb_object_agg(l.id, jsonb_build_object(
    'arrival_id', w.arrival_id, 'version', w.version, 'limit', w.declared, 'context', w.context))
  into v_changes
  from wanted w
  -- "limit 1" makes it one look at the index each: else the planner read all limiters of the policy
  cross join lateral (
    select x as limiter, x.id, x.version, x.arrival_id from limiters x
    where x.policy_id = (p_policy).id and x.gate = w.gate and x.scope_key = w.key limit 1
  ) l
  where (w.version, w.arrival_id) > (l.version, l.arrival_id)
    and (_numbers_differ(l.limiter, w.declared) or w.context is not null);
  if v_changes is null then
    return;
  end if;
  perform _change_limiters(p_policy, v_changes, p_arrivals, p_now);
end
$$;

-- Routes few arrivals for the pass that follows in the same transaction, if all they say is that known partitions have more jobs.
-- Returns how many it consumed, -1 if another router is at work, and null if nothing has happened, because _route must come
-- before, in a transaction of its own: if a limiter got other numbers, a pass that locked some limiters here and others later
-- would deadlock with releases.
create or replace function _route_few(p_policy policies, p_now timestamptz)
returns int language plpgsql as $$
declare
  v_there record;
  v_known known[];
  v_arrivals arrivals[];
  v_message text;
  v_context text;
begin
  if not (p_policy).enabled or (p_policy).max_pending_in_all is not null
    or exists (
      select from overrides o where o.policy_id = (p_policy).id and least(o.announce_at, o.announce_again_at) <= p_now)
    or exists (select from overrides o where o.policy_id = (p_policy).id and o.to_announce <> '{}') then
    return null;
  elsif not exists (select from arrivals a where a.policy = (p_policy).name) then
    return 0;
  elsif not _try_lock_turn((p_policy).id, 'route') then
    return -1;
  end if;
  select array_agg(a.id) as ids, array_agg(distinct a.partition_id) as partition_ids,
    bool_and(coalesce(
      a.pause is null and a.outcome is null and a.limits = p.limits and a.context = p.context, false)) as are_known
  into v_there
  from (select * from arrivals x where x.policy = (p_policy).name order by x.id limit _few() + 1) a
  left join partitions p on p.id = a.partition_id;
  if v_there.ids is null then
    return 0;
  elsif not v_there.are_known or cardinality(v_there.ids) > _few() or exists (
    -- the newest arrival says the numbers, of a shared limiter that of any partition
    select from partitions p cross join jsonb_array_elements(p.limits) g
    join limiters l on l.id = any(p.limiter_ids) and l.gate = g.value ->> 'gate'
    where p.id = any(v_there.partition_ids) and _numbers_differ(l, g.value)) then
    return null;
  end if;
  begin
    v_known := _lock_known(p_policy, v_there.partition_ids, p_now);
    if cardinality(v_known) < cardinality(v_there.partition_ids) then
      return null;
    end if;
    with consumed as (
      delete from arrivals a where a.policy = (p_policy).name and a.id = any(v_there.ids) returning a
    )
    select coalesce(array_agg(c.a), '{}') into v_arrivals from consumed c;
    if cardinality(v_arrivals) < cardinality(v_there.ids) then
      raise exception 'locked' using errcode = 'DPOUT';   -- somebody else has brought one into effect
    end if;
    perform _route_partitions(p_policy, v_arrivals, v_known, true, p_now);
  exception
    when lock_not_available or deadlock_detected or sqlstate 'DPOUT' then return null;
    when others then   -- _route finds which one it is, and leaves it
      get stacked diagnostics v_message = message_text, v_context = pg_exception_context;
      perform _left_to_pass((p_policy).id, _left_for_error(sqlstate, v_context), v_message, p_now);
      return null;
  end;
  return cardinality(v_arrivals);
end
$$;

-- Those of these partitions of which the breaker knows every failure. A release frees a slot and reports a failure in
-- one commit. A pass that has already routed sees only the slot, and the next job would go before the breaker opens. So a
-- pass calls this after it has read what the limiters have left.
create or replace function _known_outcomes(
  p_policy policies, p_partition_ids uuid[]
) returns uuid[] language plpgsql stable as $$
begin
  return (
    select case when (p_policy).breaker_failures is null then p_partition_ids else array(
      select u.id from unnest(p_partition_ids) with ordinality u (id, n)
      where u.id not in (
        select unnest(case when (p_policy).keyed_scopes then _siblings(a.partition_id) else array[a.partition_id] end)
        from arrivals a
        where a.policy = (p_policy).name and a.outcome ? 'failures')
      order by u.n) end);
end
$$;
