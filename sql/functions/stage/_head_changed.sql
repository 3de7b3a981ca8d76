-- Has routing look at these partitions again, because their next job may be another. It was removed, set to a later time,
-- or replaced under its job key. A partition that waits for tokens would otherwise go on waiting for as many as its former
-- next job costs. This locks no partition: it leaves an arrival, and the router changes the partition.
--
--   p_each   what each mention of a partition adds to its count of staged jobs
create or replace function _head_changed(p_partition_ids uuid[], p_each int default 0) returns void
language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with arrived as (
    insert into arrivals (policy, partition_id, key, head_changed, jobs)
    select k.policy, u.id, k.key, true, u.jobs
    from (
      select x.id, count(*) * p_each as jobs from unnest(p_partition_ids) x (id) where x.id is not null group by x.id
    ) u
    cross join lateral _policy_and_key_of(u.id) k
    returning policy
  )
  select array_agg(distinct a.policy) into v_policies from arrived a;
  perform _notify(u.policy) from unnest(v_policies) u (policy);
end
$$;
