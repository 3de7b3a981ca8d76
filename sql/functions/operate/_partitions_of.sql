-- The partitions of a policy that a verb applies to: the one with this key, or all.
create or replace function :DISPATCH_POLICY_SCHEMA._partitions_of(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_key text
) returns setof uuid language sql stable as $$
  select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
  where q.policy_id = (p_policy).id
    and (p_key is null or q.id = :DISPATCH_POLICY_SCHEMA._partition_id((p_policy).name, p_key));
$$;
