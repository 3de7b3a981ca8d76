-- Whether the router or a pass has something to do that a new job must not overtake. That is so if there are arrivals, freed rows or jobs without a partition key. It is also so if a
-- partition waits for one of these limiters, if one of the shard is eligible, or if somebody is to look at waiters by now.
create or replace function _somebody_waits(
  p_policy_id int, p_policy text, p_shard text, p_limiter_ids bigint[], p_now timestamptz
) returns boolean language plpgsql stable as $$
begin
  return exists (select from freed f where f.policy_id = p_policy_id)
    or exists (select from arrivals a where a.policy = p_policy)
    or exists (select from partitions q where q.blocked_on = any(p_limiter_ids))
    or exists (select from keyless_jobs k where k.policy = p_policy and k.retry_at <= clock_timestamp())
    or exists (
      select from partitions q
      where q.policy_id = p_policy_id and q.shard = p_shard and q.ready and q.eligible_at <= p_now)
    or exists (
      select from partitions q
      where q.policy_id = p_policy_id and q.shard = p_shard and not q.ready and q.eligible_at < 'infinity' and q.eligible_at <= p_now)
    or exists (select from limiters l where l.policy_id = p_policy_id and l.wake_at <= p_now)
    or exists (
      select from overrides o
      where o.policy_id = p_policy_id and (o.to_announce <> '{}'
        or least(o.announce_at, o.announce_again_at) <= p_now));
end
$$;
