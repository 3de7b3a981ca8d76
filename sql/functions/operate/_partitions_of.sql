-- The partitions of a policy that a verb applies to: the one with this key, or all.
create or replace function _partitions_of(
  p_policy policies, p_key text
) returns setof uuid language sql stable as $$
  select q.id from partitions q
  where q.policy_id = (p_policy).id
    and (p_key is null or q.id = _partition_id((p_policy).name, p_key));
$$;
