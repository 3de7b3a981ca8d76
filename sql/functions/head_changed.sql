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
