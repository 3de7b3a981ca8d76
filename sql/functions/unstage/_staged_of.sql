-- The staged jobs of a policy, or all (null). A job that was just staged has only its partition's id, and one without a key
-- not even that. The policy's tasks do not tell, because its declaration may have lost one since. PostgreSQL inlines this
-- query, so a caller that wants a few jobs reads only a few.
create or replace function _staged_of(p_policy text)
returns setof staged_jobs language sql stable as $$
  select s.* from staged_jobs s
  where p_policy is null
    or s.partition_id in (
      select q.id from partitions q
      join policies p on p.id = q.policy_id where p.name = p_policy)
    or s.partition_id in (
      select a.partition_id from arrivals a where a.policy = p_policy)
    or s.id in (
      select k.staged_id from keyless_jobs k where k.policy = p_policy);
$$;
