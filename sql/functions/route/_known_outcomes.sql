-- Those of these partitions of which the breaker knows every failure. A release frees a slot and reports a failure in
-- one commit. A pass that has already routed sees only the slot, and the next job would go before the breaker opens. So a
-- pass calls this after it has read what the limiters have left.
create or replace function _known_outcomes(
  p_policy policies, p_partition_ids uuid[]
) returns uuid[] language plpgsql stable as $$
begin
  return (
    select case when (p_policy).breaker_failures is null then p_partition_ids else array(
      select u.id from unnest(p_partition_ids) with ordinality u (id, n)
      where u.id not in (
        select a.partition_id from arrivals a
        where a.policy = (p_policy).name and a.outcome ? 'failures')
      order by u.n) end);
end
$$;
