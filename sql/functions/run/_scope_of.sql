-- The partition of an in-flight job, and its scope key under a gate if one is named. Null: the gate counts over the policy.
create or replace function :DISPATCH_POLICY_SCHEMA._scope_of(p_job_id bigint, p_gate text)
returns table (policy text, partition text, scope_key text) language sql stable
set search_path = pg_catalog, pg_temp as $$
  select p.name, q.key, case when l.breadth < 2 then l.scope_key end
  from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
  join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
  join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = f.partition_id
  left join :DISPATCH_POLICY_SCHEMA._private_limiters l on l.id = any(q.limiter_ids) and l.gate = p_gate
  where f.job_id = p_job_id;
$$;
