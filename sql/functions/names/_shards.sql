-- The shards of a policy that have something to wait for, by a walk over the ready queue that touches one entry each.
create or replace function :DISPATCH_POLICY_SCHEMA._shards(p_policy_id int) returns text[]
language plpgsql stable as $$
begin
  return (
  with recursive s as (
    (select p.shard from :DISPATCH_POLICY_SCHEMA._private_partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' order by p.shard limit 1)
    union all
    select (select p.shard from :DISPATCH_POLICY_SCHEMA._private_partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' and p.shard > s.shard order by p.shard limit 1)
    from s where s.shard is not null
  )
  select coalesce(array_agg(s.shard), '{}') from s where s.shard is not null);
end
$$;
