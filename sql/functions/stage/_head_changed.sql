-- The next job of these partitions may be another now: it was removed, put off, or replaced under its key. A partition
-- that waits for tokens would go on waiting for as many as its former next job costs. So routing, which alone may change
-- a waiting partition, has it looked at again.
create or replace function :DISPATCH_POLICY_SCHEMA._head_changed(p_partition_ids uuid[]) returns void
language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with noted as (
    insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (policy, partition_id, key, head_changed)
    select k.policy, u.id, k.key, true
    from (select distinct x.id from unnest(p_partition_ids) x (id) where x.id is not null) u
    cross join lateral :DISPATCH_POLICY_SCHEMA._policy_and_key_of(u.id) k
    returning policy
  )
  select array_agg(distinct n.policy) into v_policies from noted n;
  perform :DISPATCH_POLICY_SCHEMA._notify(u.policy) from unnest(v_policies) u (policy);
end
$$;
