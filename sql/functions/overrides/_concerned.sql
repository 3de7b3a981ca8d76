-- The limiters that overrides concern, in two lists of equal length. Those of one key concern its limiter. The
-- others concern limiters of their gate in `p_walked`: all of them, or those of a context.
create or replace function _concerned(
  p_policy policies, p_override_ids bigint[], p_walked bigint[],
  out override_ids bigint[], out limiter_ids bigint[]
) language plpgsql as $$
begin
  with override as materialized (
    select o.* from overrides o where o.id = any(p_override_ids)
  ),
  concerned as (
    select o.id as override_id, l.id from override o
    cross join lateral (
      select x.id from limiters x
      where x.policy_id = o.policy_id and x.gate = o.gate and x.scope_key = o.scope_key limit 1
    ) l
    union all
    select o.id, w.id from override o cross join unnest(p_walked) w (id)
    where o.scope_key is null and o.context is null
    union all
    select o.id, l.id from limiters l
    join partitions q
      on q.id = _partition_id((p_policy).name, l.scope_key)
    cross join unnest(_pairs_of(q.context)) u (pair)
    cross join lateral (
      select x.id, x.gate, x.context from overrides x
      where x.policy_id = (p_policy).id and x.context_pair = u.pair offset 0   -- as in _override_now
    ) o
    where l.id = any(p_walked) and l.breadth = 0 and o.gate = l.gate and q.context @> o.context
      and o.id in (select unnest(p_override_ids)) and exists (select from override x where x.context is not null)
  )
  select array_agg(c.override_id), array_agg(c.id) into override_ids, limiter_ids from concerned c;
end
$$;
