-- Keeps what the admitted jobs hold until they are released, and says how many that are of each partition. A job that is
-- in flight already, under the same job key, holds on to what it has: it is not charged again.
create or replace function :DISPATCH_POLICY_SCHEMA._put_in_flight(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[],
  p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[],
  p_admissions :DISPATCH_POLICY_SCHEMA._private_admission[], p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_taking[] language plpgsql volatile as $$   -- planned as _charge, which calls it
declare
  v_held bigint[] := '{}';
  v_takings :DISPATCH_POLICY_SCHEMA._private_taking[];
begin
  -- most jobs are new to Graphile Worker: without asking for conflicts 5,000 of them take 18 ms, with it 31
  if exists (select from unnest(p_admissions) a where a.counted) then
    with taken as (
      insert into :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs as f
        (job_id, staged_id, policy_id, partition_id, limiter_ids, cost, work, admitted_at)
      select a.job_id, a.staged_id, p.policy_id, p.id, p.limiter_ids, c.cost,
        :DISPATCH_POLICY_SCHEMA._work_of(p_policy, p.mean_work), p_now
      from unnest(p_admissions) a
      join unnest(p_candidates) c on c.staged_id = a.staged_id
      join :DISPATCH_POLICY_SCHEMA._private_partitions p on p.id = c.partition_id and p.id = any(p_partition_ids)
      where a.counted
      order by a.job_id
      on conflict (job_id) do update set staged_id = excluded.staged_id, attempt = null, pool_id = null
      returning f.job_id, f.xmax = 0 as fresh
    )
    select coalesce(array_agg(t.job_id) filter (where not t.fresh), '{}') into v_held from taken t;
  end if;
  with takes as materialized (
    select a.job_id, a.staged_id, p.policy_id, p.id as partition_id, p.limiter_ids, c.cost, a.counted,
      :DISPATCH_POLICY_SCHEMA._work_of(p_policy, p.mean_work) as work,
      a.job_id not in (select unnest(v_held)) as new
    from unnest(p_admissions) a
    join unnest(p_candidates) c on c.staged_id = a.staged_id
    join :DISPATCH_POLICY_SCHEMA._private_partitions p on p.id = c.partition_id and p.id = any(p_partition_ids)
    where a.job_id is not null
  ),
  taken as (
    insert into :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs
      (job_id, staged_id, policy_id, partition_id, limiter_ids, cost, work, admitted_at)
    select t.job_id, t.staged_id, t.policy_id, t.partition_id, t.limiter_ids, t.cost, t.work, p_now
    from takes t where not t.counted
  )
  -- by partition: unnesting the limiters of 5,000 jobs cost as much as inserting them
  select array_agg(row(n.partition_id, n.admitted, n.first_job_id, n.jobs, n.cost):::DISPATCH_POLICY_SCHEMA._private_taking)
  into v_takings
  from (
    select t.partition_id, count(*)::int as admitted, min(t.job_id) as first_job_id,
      count(*) filter (where t.new)::int as jobs, coalesce(sum(t.cost) filter (where t.new), 0) as cost
    from takes t group by t.partition_id
  ) n;
  return v_takings;
end
$$;
