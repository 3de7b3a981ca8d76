-- The policy and the key of a partition. If it is not routed yet, one of its other arrivals has them. If it does not exist
-- any more, there is no row. PostgreSQL inlines this query, so thousands of partitions are looked up in one plan.
create or replace function _policy_and_key_of(p_partition_id uuid)
returns table (policy text, key text) language sql stable as $$
  select coalesce(p.name, a.policy), coalesce(q.key, a.key)
  from (select p_partition_id as id) u
  left join partitions q on q.id = u.id
  left join policies p on p.id = q.policy_id
  left join lateral (
    select x.policy, x.key from arrivals x
    where q.id is null and x.partition_id = u.id limit 1
  ) a on true
  where coalesce(q.key, a.key) is not null;
$$;
