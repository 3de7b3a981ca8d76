-- Every shard of these policies that has something to do or a leader, and always 'default'. `p_shards` null: of all shards.
--
--   p_idle   also the shards in `p_shards`, and those that had a leader. If all partitions of a shard wait for a job
--            to end, the shard has nothing to do. Its leader must stay all the same, because it is notified of that end.
create or replace function _led_shards(p_policies text[], p_shards text[], p_idle boolean)
returns table (policy text, policy_id int, shard text, ahead_limiter_id bigint) language sql stable as $$
  select p.name, p.id, s.shard, p.ahead_limiter_id
  from policies p
  cross join lateral (
    select 'default' as shard
    union select unnest(_shards(p.id))
    union select a.shard from (
      select a.shard from arrivals a where a.policy = p.name order by a.id limit 100) a
    union select l.shard from leases l where l.policy = p.name and (p_idle or l.expires_at > clock_timestamp())
    -- a policy whose definition names its shard has no others
    union select u.shard from unnest(p_shards) u (shard) where p_idle and p.definition ->> 'shard' is null
  ) s
  where p.name = any(p_policies) and s.shard is not null and (p_shards is null or s.shard = any(p_shards));
$$;
