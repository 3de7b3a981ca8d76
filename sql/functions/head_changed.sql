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
    select coalesce(p.name, a.policy), u.id, coalesce(q.key, a.key), true
    from (select distinct x.id from unnest(p_partition_ids) x (id) where x.id is not null) u
    left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = u.id
    left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
    -- not routed yet: another arrival has its key
    left join lateral (
      select x.policy, x.key from :DISPATCH_POLICY_SCHEMA._private_arrivals x
      where q.id is null and x.partition_id = u.id limit 1
    ) a on true
    where coalesce(q.key, a.key) is not null
    returning policy
  )
  select array_agg(distinct n.policy) into v_policies from noted n;
  perform :DISPATCH_POLICY_SCHEMA._notify(u.policy) from unnest(v_policies) u (policy);
end
$$;

-- The same before a verb changes or removes staged jobs, or parked ones: by staged id, or by that of the parked job. It
-- locks them, so that nobody moves them to another partition meanwhile.
create or replace function :DISPATCH_POLICY_SCHEMA._before_change(p_job_ids bigint[]) returns void
language plpgsql volatile as $$
begin
  perform :DISPATCH_POLICY_SCHEMA._head_changed(array(
    select s.partition_id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(p_job_ids) or s.parked_job_id = any(p_job_ids) order by s.id for no key update));
end
$$;
