-- Partitions whose jobs name different keys at a gate over a key of their own. The waiting jobs of a partition are charged to
-- the keys of its newest one, so such a gate is not strict: this finds it out before the arrivals are applied. Only what jobs
-- bring by one definition counts. An operator who refreshes a context, and a new definition, change keys on purpose.
--
-- Returns { <partition id>: { "gate", "before", "after" } }. Null: there is none.
create or replace function _mixed_keys(
  p_policy policies, p_arrivals arrivals[],
  p_known known[]
) returns jsonb language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _route_limits
begin
  return (
    with brought as materialized (
      select a.partition_id, a.id, a.version, a.context, a.limits from unnest(p_arrivals) a
      where a.limits is not null and a.shard is not null   -- a refreshed context has no shard
    ),
    newest as materialized (
      select distinct on (b.partition_id) b.* from brought b order by b.partition_id, b.version desc, b.id desc
    ),
    other as (
      select b.partition_id, b.version, b.context, b.limits from brought b
      union all
      select q.id, q.version, q.context, q.limits
      from partitions q
      join definitions d on d.policy_id = q.policy_id and d.hash = (p_policy).definition_hash
      where q.id = any(array(
          select k.id from unnest(p_known) k join newest n on n.partition_id = k.id and n.limits <> k.limits))
        and greatest(q.created_at, q.limits_since) >= d.in_force_at
        and (q.staged > 0 or exists (
          select from in_flight_jobs f where f.partition_id = q.id))
    )
    select jsonb_object_agg(m.partition_id, jsonb_build_object('gate', m.gate, 'before', m.before, 'after', m.after))
    from (
      select distinct on (n.partition_id) n.partition_id, b.value ->> 'gate' as gate, b.value ->> 'key' as before,
        a.value ->> 'key' as after
      from newest n
      -- of one definition, the same context gives the same keys
      join other o on o.partition_id = n.partition_id and o.version = n.version and o.limits <> n.limits
        and o.context <> n.context
      cross join lateral jsonb_array_elements(o.limits) b
      join lateral jsonb_array_elements(n.limits) a on a.value ->> 'gate' = b.value ->> 'gate'
      where a.value ->> 'key' <> b.value ->> 'key'
      order by n.partition_id
    ) m);
end
$$;
