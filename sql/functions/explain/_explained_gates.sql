-- What each gate says to a job of this cost, as a json array from narrow to broad scope, the ahead bound last. A gate is read without a lock: what it says is of one moment, and may be another at the next pass.
--
--   lacks     whether it has no room
--   next_at   when it has the tokens that it lacks, or when the override ends that sets it to 0; null: that depends on other jobs
--   set_by    the override in force, with who set it and for what (`key`, or `where`, the context; neither: every key), and whether it is a `hold`; null: the numbers are the policy's, or of the job's context (`source`)
--   kept_for  the partition for which a slot is reserved
--   would_lack  of a shadow gate: whether it would have no room; null: the gate is real. A shadow gate lacks nothing
create or replace function _explained_gates(
  p_policy policies, p_partition partitions,
  p_cost float8, p_now timestamptz
) returns jsonb language plpgsql stable as $$
begin
  return (
    select coalesce(jsonb_agg(jsonb_build_object(
      'gate', n.gate,
      'kind', n.kind,
      'scope', (array['partition', 'key', 'policy', 'workers'])[n.breadth + 1],
      'key', case when n.breadth < 2 then n.scope_key end,
      'limit', case when n.share is not null then jsonb_build_object('max', n.cap, 'share', n.share, 'pools', greatest(n.pools, 1))
        when k.tokens is null then jsonb_build_object('max', n.cap)
        else jsonb_build_object('rate', n.rate, 'per', n.per, 'capacity', n.capacity, 'sliding', n.spent is not null and n.calendar is null,
          'calendar', n.calendar) end,
      'source', case when o.id is not null then 'override' when n.kind = 'ahead' then 'workers'
        when jsonb_typeof(d.gate -> 'values') = 'null' then 'context' else 'policy' end,
      'set_by', case when o.id is not null then jsonb_build_object('by', o.set_by, 'reason', o.reason,
        'key', o.scope_key, 'where', o.context, 'hold', o.is_hold, 'since', case when isfinite(o.from_at) then o.from_at else o.set_at end,
        'until', nullif(o.until_at, 'infinity')) end,
      'used', case when k.tokens is null then n.in_flight + n.ending else greatest(n.capacity - k.tokens, 0) end,
      'free', case when n.rate <= 0 then 0 when k.tokens is not null then greatest(k.tokens, 0)
        when n.cap is not null then coalesce(n.shadow_slots, n.slots) end,
      'shadow', k.is_shadow,
      'would_lack', case when k.is_shadow then coalesce((p_policy).enabled and _lacks_room(
        n.shadow_slots, null, n.shadow_tokens, n.capacity, n.rate, (p_partition).id, p_cost), false) end,
      'lacks', k.lacks,
      'reason', case when k.lacks then k.reason end,
      'next_at', case when not k.lacks then null
        when k.reason in ('rate_zero', 'max_zero') then _zero_until(n.id, p_now)
        when n.tokens is not null then _throttle_ready_at(n.tokens, n.rate, n.per, n.capacity, n.spent, n.calendar, p_cost, p_now) end,
      'kept_for', (select r.key from partitions r where r.id = n.reserved_for),
      'holders', case when n.tokens is null and k.lacks then _holders(n.id) else '[]' end
    ) order by u.ord), '[]')
    from unnest((p_partition).limiter_ids) with ordinality u (id, ord)
    join _rooms_of((p_policy).id, (p_partition).limiter_ids, p_now, true) n on n.id = u.id
    left join lateral (
      select x.value as gate from jsonb_array_elements((p_policy).definition -> 'gates') x
      where x.value ->> 'name' = n.gate
    ) d on true
    left join overrides o on o.id = _override_id_at(
      (p_policy).id, n.gate, n.scope_key, case when n.breadth = 0 then (p_partition).context end, p_now, p_now)
    cross join lateral (
      -- nobody asks the gates of a policy that is switched off
      select coalesce((p_policy).enabled and _lacks_room(
          n.slots, n.reserved_for, n.tokens, n.capacity, n.rate, (p_partition).id, p_cost), false) as lacks,
        _lack_reason(n.kind, n.tokens, n.rate, coalesce(n.share, n.cap)) as reason,
        coalesce(n.tokens, n.shadow_tokens) as tokens, n.shadow_tokens is not null or n.shadow_slots is not null as is_shadow
    ) k);
end
$$;
