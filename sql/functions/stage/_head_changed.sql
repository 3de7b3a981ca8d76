-- Has routing look at these partitions again, because their next job may be another: it was removed, put off, or replaced
-- under its key. A partition that waits for tokens would otherwise go on waiting for as many as its former next job costs.
-- Only routing may change a waiting partition.
create or replace function :DISPATCH_POLICY_SCHEMA._head_changed(p_partition_ids uuid[]) returns void
language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with arrived as (
    insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (policy, partition_id, key, head_changed)
    select k.policy, u.id, k.key, true
    from (select distinct x.id from unnest(p_partition_ids) x (id) where x.id is not null) u
    cross join lateral :DISPATCH_POLICY_SCHEMA._policy_and_key_of(u.id) k
    returning policy
  )
  select array_agg(distinct a.policy) into v_policies from arrived a;
  perform :DISPATCH_POLICY_SCHEMA._notify(u.policy) from unnest(v_policies) u (policy);
end
$$;
