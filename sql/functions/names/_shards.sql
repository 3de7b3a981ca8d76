-- The shards of a policy that have something to wait for, by walks over the indexes that touch one entry each.
create or replace function _shards(p_policy_id int) returns text[]
language plpgsql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return (
  with recursive timed as (
    (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' and not p.ready order by p.shard limit 1)
    union all
    select (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' and not p.ready and p.shard > t.shard
      order by p.shard limit 1)
    from timed t where t.shard is not null
  ),
  ready as (
    (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.ready order by p.shard limit 1)
    union all
    select (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.ready and p.shard > r.shard order by p.shard limit 1)
    from ready r where r.shard is not null
  )
  select coalesce(array_agg(s.shard), '{}')
  from (select t.shard from timed t union select r.shard from ready r) s where s.shard is not null);
end
$$;
