-- The context by which limits by context apply to a limiter: that of its partition. Null: the policy has no such limit, the
-- limiter counts over more than a partition, or no job of the partition has come.
create or replace function _context_of(limiter limiters)
returns jsonb language sql stable as $$
  select q.context from policies p
  join partitions q
    on q.id = _partition_id(p.name, limiter.scope_key)
  where p.id = limiter.policy_id and limiter.breadth = 0 and exists (
    select from overrides o
    where o.policy_id = limiter.policy_id and o.context_pair is not null);
$$;
