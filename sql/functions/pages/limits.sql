-- For pages, and nothing else calls it: what a limit would change.

-- What the numbers of a gate are, and what they would be after set_limit; with `set` null, after clear_limit. That is for
-- one scope key, for the partitions of a context (`"where"`), or for all keys. It is for the page that asks first, and
-- checks no number.
--
--   before      the gate's own numbers, and over them the limit that is in force. A number that is null has its default. One
--               that is missing comes from the context of the jobs, and none of the key has come
--   afterwards  the same after the call. A limit that goes before this one, such as a hold of the gate, stays
create or replace function :DISPATCH_POLICY_SCHEMA.limit_changes(
  policy text, gate text, set jsonb, key text default null, "where" jsonb default null
) returns table (before jsonb, afterwards jsonb) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_policy policies := _policy(limit_changes.policy);
  v_gate jsonb := (
    select g.value from jsonb_array_elements(v_policy.definition -> 'gates') g where g.value ->> 'name' = limit_changes.gate);
  v_limiter limiters;
  v_key text := coalesce(limit_changes.key, case when v_gate ->> 'scope' = 'policy' then '' end);
  v_own jsonb;
begin
  perform _check_limit(
    v_policy, limit_changes.gate, null, 'limit_changes', limit_changes.key, limit_changes."where");
  select l.* into v_limiter from limiters l
  where l.policy_id = v_policy.id and l.gate = limit_changes.gate and l.scope_key = v_key;
  v_own := case when v_limiter.id is null then coalesce(nullif(v_gate -> 'values', 'null'), v_gate -> 'constants')
    else to_jsonb(v_limiter.numbers) end;
  return query
  with in_force as materialized (
    select o.id, o.set, case when o.scope_key is not null then 1 when o.context is not null then 2 else 3 end as rank,
      o.scope_key is not distinct from limit_changes.key
        and o.context is not distinct from limit_changes."where" as is_ended
    from _overrides_by(v_policy.id, v_now) o
    where o.gate = limit_changes.gate and o.began_at <= v_now and v_now < o.until_at
      and (o.scope_key = v_key or o.scope_key is null)
      and (o.context is null or coalesce(limit_changes."where", _context_of(v_limiter)) @> o.context)
  ),
  left_over as (
    select f.id, f.set, f.rank from in_force f where not f.is_ended
    union all
    select 9223372036854775807, limit_changes.set,
      case when limit_changes.key is not null then 1 when limit_changes."where" is not null then 2 else 3 end
    where limit_changes.set is not null
  )
  select
    v_own || coalesce((select f.set from in_force f order by f.rank, f.id desc limit 1), '{}'),
    v_own || coalesce((select a.set from left_over a order by a.rank, a.id desc limit 1), '{}');
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.limit_changes from public;
