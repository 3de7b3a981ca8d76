-- Whether the router or a pass has something to do that a new job must not overtake. That is so if there are arrivals, freed
-- rows or jobs without a partition key. It is also so if a partition waits for one of these limiters, or one of the shard
-- is eligible.
create or replace function _somebody_waits(
  p_policy_id int, p_policy text, p_shard text, p_limiter_ids bigint[], p_now timestamptz
) returns boolean language plpgsql stable as $$
begin
  return _is_to_route(p_policy_id, p_policy)
    or exists (select from partitions q where q.blocked_on = any(p_limiter_ids))
    or _is_to_key(p_policy)
    or coalesce(_next_eligible_at(p_policy, p_shard), 'infinity') <= p_now;
end
$$;
