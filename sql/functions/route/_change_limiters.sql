-- Locks these limiters ascending, and gives them their new numbers. It waits for a lock only for a moment (lock_timeout),
-- because a release or a tick has a limiter locked for a few milliseconds.
--
--   p_changes   by limiter: its `limit` by the definition, the `arrival_id` and `version` that bring it, and the `context` that
--               its partition had until now, if the limits by context differ for the new one
--
-- If a transaction keeps a limiter locked, this raises lock_not_available. The detail names the partitions that have to
-- wait: those whose arrivals concern such a limiter. Locks and changes are in one subtransaction: a row that is locked in
-- another one costs a multixact.
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
      longest = _longest_window(l, p_now),
      longest_until = p_now + make_interval(days => 1, secs => _longest_window(l, p_now)),
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
