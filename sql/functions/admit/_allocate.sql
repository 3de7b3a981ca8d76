-- Which due jobs of the claimed partitions go now, and one more of each partition than it may admit: what is left of
-- them tells whether it drains.
--
-- A first ranking reads only as many jobs of each partition as the fairest share of what the broad limiters have left
-- could give it: with room for 100 jobs, 50 deep partitions have 200 candidates, not 5,000 (120 ms, now 15). Where
-- others had fewer jobs than their share, or a narrow limit left room unused, and a partition that got all of its share
-- could have more, all are ranked.
create or replace function :DISPATCH_POLICY_SCHEMA._allocate(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[],
  p_limiters :DISPATCH_POLICY_SCHEMA._private_limiter_now[], p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_candidate[] language plpgsql stable as $$
declare
  v_ranked record;
begin
  select * into v_ranked from :DISPATCH_POLICY_SCHEMA._rank(
    p_policy, p_partition_ids, p_limiters, p_now, false);
  if v_ranked.wants_more then
    select * into v_ranked from :DISPATCH_POLICY_SCHEMA._rank(
      p_policy, p_partition_ids, p_limiters, p_now, true);
  end if;
  return coalesce(v_ranked.candidates, '{}');
end
$$;
