-- The context by which limits by context apply to a limiter: that of its partition. Null: the policy has no such limit, the
-- limiter counts over more than a partition, or no job of the partition has come.
create or replace function :DISPATCH_POLICY_SCHEMA._context_of(limiter :DISPATCH_POLICY_SCHEMA._private_limiters)
returns jsonb language sql stable as $$
  select q.context from :DISPATCH_POLICY_SCHEMA._private_policies p
  join :DISPATCH_POLICY_SCHEMA._private_partitions q
    on q.id = :DISPATCH_POLICY_SCHEMA._partition_id(p.name, limiter.scope_key)
  where p.id = limiter.policy_id and limiter.breadth = 0 and exists (
    select from :DISPATCH_POLICY_SCHEMA._private_overrides o
    where o.policy_id = limiter.policy_id and o.context_pair is not null);
$$;
