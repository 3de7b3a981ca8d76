-- The staged jobs of a policy, or all (null). A job that was just staged has only its partition's id, and one without a key
-- not even that. The policy's tasks do not tell, because its declaration may have lost one since. PostgreSQL inlines this
-- query, so a caller that wants a few jobs reads only a few.
create or replace function :DISPATCH_POLICY_SCHEMA._staged_of(p_policy text)
returns setof :DISPATCH_POLICY_SCHEMA._private_staged_jobs language sql stable as $$
  select s.* from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
  where p_policy is null
    or s.partition_id in (
      select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
      join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id where p.name = p_policy)
    or s.partition_id in (
      select a.partition_id from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy = p_policy)
    or s.id in (
      select k.staged_id from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k where k.policy = p_policy);
$$;
