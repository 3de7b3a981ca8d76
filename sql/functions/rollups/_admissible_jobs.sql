-- How many due jobs the gates of a policy would let go now, if there were workers for them: the ahead bound does not count.
-- An autoscaler adds workers for these, and not for a backlog that limits keep back.
--
-- It asks the rule that passes ask, without a lock. It looks at the 100 partitions that are next in fair order, so it may be
-- more. A policy that is paused has none.
create or replace function _admissible_jobs(
  p_policy policies, p_now timestamptz
) returns int language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _admit
as $$
declare
  v_shards text[];
  v_partition_ids uuid[];
  v_limiters room_before[];
begin
  if (p_policy).paused_until > p_now then
    return 0;
  end if;
  v_shards := _shards((p_policy).id);
  -- Each shard is asked by itself, as in _claim. Over several the index has no order, so all ready partitions were read and
  -- sorted. Of 100,000 that took 130 ms, and takes 1 now.
  v_partition_ids := array(
    select c.id from (
      select x.* from unnest(v_shards) s (shard)
      cross join lateral (
        select q.id, q.fair_key from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and q.ready and q.eligible_at <= p_now
        order by q.fair_key limit 100) x
      union
      -- those that nobody has looked at since: the last pass was before, or nobody ticks
      select x.* from unnest(v_shards) s (shard)
      cross join lateral (
        select q.id, q.fair_key from partitions q
        where q.policy_id = (p_policy).id and q.shard = s.shard and not q.ready
          and q.eligible_at < 'infinity' and q.eligible_at <= p_now
        order by q.eligible_at limit 100) x
      union
      (select q.id, q.fair_key from partitions q
        where q.blocked_on = (p_policy).ahead_limiter_id order by q.fair_key limit 100)
    ) c order by c.fair_key limit 100);
  if v_partition_ids = '{}' then
    return 0;
  end if;
  v_limiters := array(
    select l from _rooms_of(
      (p_policy).id, _limiters_of(v_partition_ids), p_now, false) l);
  return (
    select count(*) from unnest(case when (p_policy).enabled
      then _allocate(p_policy, _claimed(v_partition_ids, '{}'), v_limiters, p_now)
      else array(select f from _first_due(v_partition_ids, (p_policy).batch_size, null) f) end) c
    where c.chosen);
end
$$;
