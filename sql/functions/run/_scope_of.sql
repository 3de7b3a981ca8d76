-- The partition of an in-flight job, and its scope key under a gate if one is named. Null: the gate counts over the policy.
create or replace function _scope_of(p_job_id bigint, p_gate text)
returns table (policy text, partition text, scope_key text) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select p.name, q.key, case when l.breadth < 2 then l.scope_key end
  from in_flight_jobs f
  join policies p on p.id = f.policy_id
  join partitions q on q.id = f.partition_id
  left join limiters l on l.id = any(q.limiter_ids) and l.gate = p_gate
  where f.job_id = p_job_id;
$$;
