-- Deletes the leases of shards that have no partition any more. Called after partitions were deleted.
create or replace function _forget_shards() returns void language sql volatile as $$
  delete from leases l
  where l.shard <> 'default'
    and not exists (
      select from partitions q
      join policies p on p.id = q.policy_id
      where p.name = l.policy and q.shard = l.shard)
    and not exists (
      select from arrivals a where a.policy = l.policy and a.shard = l.shard);
$$;
