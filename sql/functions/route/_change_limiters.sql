-- Locks these limiters ascending, and gives them their new numbers. It waits for a lock only for a moment (lock_timeout),
-- because a release or a tick has a limiter locked for a few milliseconds.
--
--   p_changes   by limiter: its `limit` by the definition, the `arrival_id` and `version` that bring it, and the `context` that
--               its partition had until now, if the limits by context differ for the new one
--
-- If a transaction keeps a limiter locked, this raises lock_not_available. The detail names the partitions that have to
-- wait: those whose arrivals concern such a limiter. Locks and changes are in one subtransaction: a row that is locked in
-- another one costs a multixact.
create or replace function :DISPATCH_POLICY_SCHEMA._change_limiters(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_changes jsonb,
  p_arrivals :DISPATCH_POLICY_SCHEMA._private_arrivals[], p_now timestamptz
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_ids bigint[] := array(select k::bigint from jsonb_object_keys(p_changes) k);
  v_free bigint[];
  v_partition_ids uuid[];
  v_overridden boolean := exists (
    select from :DISPATCH_POLICY_SCHEMA._private_overrides o where o.policy_id = (p_policy).id);
begin
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l where l.id = any(v_ids) order by l.id for no key update;
  with change as (
    select c.key::bigint as id, (c.value ->> 'arrival_id')::bigint as arrival_id, (c.value ->> 'version')::int as version,
      c.value #>> '{limit,kind}' as kind, nullif(c.value -> 'context', 'null') as context,
      :DISPATCH_POLICY_SCHEMA._breadth(c.value #>> '{limit,scope}') as breadth,
      (c.value #>> '{limit,position}')::smallint as position, n.numbers, (n.numbers).rate is not null as by_tokens,
      :DISPATCH_POLICY_SCHEMA._is_window(n.numbers) as is_window
    from jsonb_each(p_changes) c
    cross join lateral (
      select jsonb_populate_record(null:::DISPATCH_POLICY_SCHEMA._private_gate_numbers, c.value -> 'limit') as numbers) n
  ),
  changed as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set
      kind = c.kind, breadth = c.breadth, position = c.position, numbers = c.numbers,
      -- the tokens that the old rate has brought stay, within the new capacity
      tokens = case when c.by_tokens then least(
        case when l.by_tokens then :DISPATCH_POLICY_SCHEMA._throttle_left(
          l, p_now, v_overridden, coalesce(c.context, :DISPATCH_POLICY_SCHEMA._context_of(l))) else l.tokens end,
        :DISPATCH_POLICY_SCHEMA._throttle_capacity(c.numbers)) else l.tokens end,
      -- the tokens that a bucket lacks to be full count as spent now
      spent = case when not l.by_tokens or not c.by_tokens or (:DISPATCH_POLICY_SCHEMA._is_window(l.numbers) and c.is_window) then l.spent
        when c.is_window then :DISPATCH_POLICY_SCHEMA._window_spend('{}', 1, 1,
          :DISPATCH_POLICY_SCHEMA._throttle_capacity(l.numbers)
            - :DISPATCH_POLICY_SCHEMA._throttle_left(
              l, p_now, v_overridden, coalesce(c.context, :DISPATCH_POLICY_SCHEMA._context_of(l))), p_now)
        else '{}' end,
      -- the definition before may come back: its window's spendings are remembered for a day plus its length
      longest = :DISPATCH_POLICY_SCHEMA._longest_window(l, p_now),
      longest_until = p_now + make_interval(days => 1, secs => :DISPATCH_POLICY_SCHEMA._longest_window(l, p_now)),
      refilled_at = :DISPATCH_POLICY_SCHEMA._throttle_filled_at(l.refilled_at, p_now),
      current_max = case when (c.numbers).initial_max is not null then least(
        greatest(coalesce(l.current_max, (c.numbers).initial_max), (c.numbers).min), (c.numbers).max) end,
      arrival_id = c.arrival_id, version = c.version
    from change c
    where l.id = c.id and l.id = any(v_ids)
      and (c.version, c.arrival_id) >= (l.version, l.arrival_id)   -- equal: `take` made it, and changes it
    returning l.id
  )
  insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
  select (p_policy).id, c.id from changed c;
exception when lock_not_available or deadlock_detected then
  v_free := array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(v_ids) order by l.id for no key update skip locked);
  v_partition_ids := array(
    select distinct a.partition_id from unnest(p_arrivals) a
    cross join lateral jsonb_array_elements(a.limits) x
    join :DISPATCH_POLICY_SCHEMA._private_limiters l
      on l.gate = x.value ->> 'gate'
      and l.scope_key = :DISPATCH_POLICY_SCHEMA._scope_key(x.value ->> 'scope', x.value ->> 'key', a.key)
    where l.id = any(v_ids) and l.id <> all (v_free));
  raise exception 'dispatch_policy: limiters that get new numbers are locked'
    using errcode = 'lock_not_available', detail = 'partitions ' || v_partition_ids::text;
end
$$;
