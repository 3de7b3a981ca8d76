-- Creates the partitions and limiters these arrivals name and are not there yet, and brings known partitions up to
-- date: work lowers `due_at` and the head; a later arrival (or a higher version) replaces context and limits. A partition
-- that waits for tokens is looked at again where its next job may be another. Returns the limiters it has made, as gate
-- and scope key.
create or replace function :DISPATCH_POLICY_SCHEMA._route_partitions(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_arrivals :DISPATCH_POLICY_SCHEMA._private_arrivals[],
  p_now timestamptz, out made_gates text[], out made_keys text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _allocate: 1,000 arrivals were joined by nested loops
begin
  with arrival as materialized (select a.* from unnest(p_arrivals) a),
  newest as materialized (
    select distinct on (a.partition_id) a.* from arrival a
    order by a.partition_id, (a.limits is not null) desc, a.version desc, a.id desc
  ),
  work as materialized (
    select a.partition_id, min(a.due_at) as due_at, min(a.min_cost) as min_cost,
      bool_or(a.head_changed) as head_changed,
      min(a.due_at) filter (where a.head_id = 9223372036854775807) as later_at, (array_agg(a.shard order by a.id))[1] as shard
    from arrival a group by a.partition_id
  ),
  first as materialized (
    select distinct on (a.partition_id) a.partition_id, a.head_priority, a.head_run_at, a.head_id from arrival a
    order by a.partition_id, a.head_priority, a.head_run_at, a.head_id
  ),
  stop as materialized (
    select a.partition_id, max((a.pause ->> 'until')::timestamptz) as paused_until,
      max((a.pause ->> 'held')::timestamptz) as held_until, (array_agg(a.pause order by a.id desc))[1] as pause
    from arrival a where a.pause is not null group by a.partition_id
  ),
  known as materialized (
    select p.id, p.limits, p.arrival_id, p.version, p.head_priority, p.head_run_at, p.head_id, p.blocked_on,
      p.denied_until
    from :DISPATCH_POLICY_SCHEMA._private_partitions p
    where p.id = any(array(select w.partition_id from work w))
  ),
  -- whose limits have to be looked up: new partitions, and those whose limits changed
  changed as materialized (
    select n.* from newest n left join known k on k.id = n.partition_id
    where n.limits is not null and (k.id is null
      or ((n.version, n.id) > (k.version, k.arrival_id) and n.limits is distinct from k.limits))
  ),
  wanted as materialized (
    select c.partition_id, c.id as arrival_id, c.version as arrival_version,
      l.value ->> 'gate' as gate, l.value ->> 'kind' as kind, :DISPATCH_POLICY_SCHEMA._breadth(l.value ->> 'scope') as breadth,
      (l.value ->> 'position')::smallint as position,
      jsonb_populate_record(null:::DISPATCH_POLICY_SCHEMA._private_gate_numbers, l.value) as numbers,
      :DISPATCH_POLICY_SCHEMA._scope_key(l.value ->> 'scope', l.value ->> 'key', c.key) as scope_key
    from changed c cross join lateral jsonb_array_elements(c.limits) l
  ),
  limiter as materialized (
    select distinct on (w.gate, w.scope_key) w.* from wanted w order by w.gate, w.scope_key, w.arrival_version desc, w.arrival_id desc
  ),
  there as materialized (
    -- "limit 1": one look at the index each, whatever the planner believes (it read all limiters of the policy)
    select l.id, l.gate, l.scope_key from limiter w
    cross join lateral (
      select x.id, x.gate, x.scope_key from :DISPATCH_POLICY_SCHEMA._private_limiters x
      where x.policy_id = (p_policy).id and x.gate = w.gate and x.scope_key = w.scope_key limit 1
    ) l
  ),
  made as (
    insert into :DISPATCH_POLICY_SCHEMA._private_limiters (
      policy_id, gate, scope_key, kind, breadth, position, numbers, tokens, refilled_at, current_max, arrival_id, version)
    select (p_policy).id, w.gate, w.scope_key, w.kind, w.breadth, w.position, w.numbers,
      case when (w.numbers).rate is not null then :DISPATCH_POLICY_SCHEMA._throttle_capacity(w.numbers) end,
      case when (w.numbers).rate is not null then p_now end, (w.numbers).initial_max, w.arrival_id, w.arrival_version
    from limiter w
    where not exists (select from there t where t.gate = w.gate and t.scope_key = w.scope_key)
    returning id, gate, scope_key
  ),
  limiter_id as materialized (select * from there union all select * from made),
  limiter_ids as materialized (
    select w.partition_id,
      array_agg(i.id order by w.breadth, w.position) as ids
    from wanted w join limiter_id i on i.gate = w.gate and i.scope_key = w.scope_key group by w.partition_id
  ),
  updated as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions p set
      due_at = least(p.due_at, w.due_at),
      min_cost = least(p.min_cost, w.min_cost),
      head_priority = case when f.lower then f.head_priority else p.head_priority end,
      head_run_at = case when f.lower then f.head_run_at else p.head_run_at end,
      head_id = case when f.lower then f.head_id else p.head_id end,
      arrival_id = case when n.newer then n.id else p.arrival_id end,
      version = case when n.newer then n.version else p.version end,
      context = case when n.newer then coalesce(n.context, p.context) else p.context end,
      weight = case when n.newer then coalesce(n.weight, p.weight) else p.weight end,
      limits = case when n.newer then n.limits else p.limits end,
      limiter_ids = case when n.newer and n.limits is distinct from p.limits
        then coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id else p.limiter_ids end,
      paused_until = coalesce(s.paused_until, p.paused_until),
      held_until = coalesce(s.held_until, p.held_until),
      probing = p.probing or s.held_until is not null,
      stopped_by = case when s.pause is null then p.stopped_by else s.pause ->> 'by' end,
      stop_reason = case when s.pause is null then p.stop_reason else s.pause ->> 'reason' end,
      denied_until = case when s.pause is null and not m.waits_in_vain
        then least(p.denied_until, m.looks_at) else '-infinity' end,
      blocked_on = case when s.pause is null and not m.waits_in_vain then p.blocked_on end,
      denied_reason = case when s.pause is null and not m.waits_in_vain then p.denied_reason end
    from work w
    join known k on k.id = w.partition_id
    join lateral (
      select x.*, (x.head_priority, x.head_run_at, x.head_id) <= (k.head_priority, k.head_run_at, k.head_id) as lower
      from first x where x.partition_id = w.partition_id
    ) f on true
    join lateral (
      select x.*, x.limits is not null and (x.version, x.id) > (k.version, k.arrival_id) as newer from newest x
      where x.partition_id = w.partition_id
    ) n on true
    left join limiter_ids i on i.partition_id = w.partition_id
    left join stop s on s.partition_id = w.partition_id
    cross join lateral (
      select (f.lower or w.head_changed or w.later_at < k.denied_until) and exists (
        select from :DISPATCH_POLICY_SCHEMA._private_limiters l where l.id = k.blocked_on and l.by_tokens)
        as for_tokens
    ) t
    -- for a limiter it no longer uses, or for more tokens than its new next job may need; one that is not due yet may be
    -- the next when it is
    cross join lateral (
      select coalesce(n.newer and n.limits is distinct from k.limits
          and k.blocked_on <> all (coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id), false)
        or (t.for_tokens and (f.lower or w.head_changed)) as waits_in_vain,
        case when t.for_tokens then w.later_at end as looks_at
    ) m
    where p.id = w.partition_id and p.id = any(array(select x.partition_id from work x))
  ),
  -- whoever stood behind it in a shared throttle's line may go for what is there
  announced as (
    insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
    select distinct (p_policy).id, l.id from work w
    join known k on k.id = w.partition_id
    cross join lateral (
      select x.id from :DISPATCH_POLICY_SCHEMA._private_limiters x
      where x.id = k.blocked_on and x.by_tokens and x.breadth > 0 limit 1
    ) l
    where w.head_changed
  ),
  inserted as (
    insert into :DISPATCH_POLICY_SCHEMA._private_partitions (
      id, policy_id, key, shard, context, limits, weight, min_cost, limiter_ids, arrival_id, version, due_at,
      head_priority, head_run_at, head_id, paused_until, held_until, probing, stopped_by, stop_reason, decayed_at)
    select w.partition_id, (p_policy).id, n.key, coalesce(w.shard, 'default'), coalesce(n.context, '{}'),
      coalesce(n.limits, '[]'), coalesce(n.weight, 1), least(1, w.min_cost),
      coalesce(i.ids, '{}') || (p_policy).ahead_limiter_id, case when n.limits is null then 0 else n.id end, n.version,
      w.due_at, f.head_priority, f.head_run_at, f.head_id,
      coalesce(s.paused_until, '-infinity'), coalesce(s.held_until, '-infinity'), s.held_until is not null,
      s.pause ->> 'by', s.pause ->> 'reason', p_now
    from work w
    join newest n on n.partition_id = w.partition_id
    join first f on f.partition_id = w.partition_id
    left join limiter_ids i on i.partition_id = w.partition_id
    left join stop s on s.partition_id = w.partition_id
    where not exists (select from known k where k.id = w.partition_id)
  )
  select array_agg(m.gate), array_agg(m.scope_key) into made_gates, made_keys from made m;
end
$$;
