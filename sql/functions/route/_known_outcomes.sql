-- Those of these partitions of which the breaker knows every failure. A release gives a slot back and reports a failure in
-- one commit. A pass that has already routed sees only the slot, and the next job would go before the breaker opens. So a
-- pass calls this after it has read what the limiters have left.
create or replace function :DISPATCH_POLICY_SCHEMA._known_outcomes(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[]
) returns uuid[] language sql stable as $$
  select case when (p_policy).breaker_failures is null then p_partition_ids else array(
    select u.id from unnest(p_partition_ids) with ordinality u (id, n)
    where u.id not in (
      select a.partition_id from :DISPATCH_POLICY_SCHEMA._private_arrivals a
      where a.policy = (p_policy).name and a.outcome ? 'failures')
    order by u.n) end;
$$;
