-- The staged jobs that `remove` and `cancel` act on: by their ids, by their job key, or those of a policy or partition. If
-- several are given, a job matches all. A parked job has Graphile Worker's id as well. PostgreSQL inlines this query.
create or replace function _removable(
  p_ids bigint[], p_job_key text, p_policy text, p_partition text
) returns table (id bigint) language sql stable as $$
  select s.id from staged_jobs s
  left join partitions q on q.id = s.partition_id
  left join policies p on p.id = q.policy_id
  where (p_ids is null or s.id = any(p_ids) or s.parked_job_id = any(p_ids))
    and (p_job_key is null or s.id = any(array(
      select n.id from staged_jobs n where n.job_key = p_job_key
      union all
      select n.id from :GRAPHILE_WORKER_SCHEMA.jobs j
      join staged_jobs n on n.parked_job_id = j.id where j.key = p_job_key)))
    -- a job that was just staged has only its partition's id
    and (p_policy is null or p.name = p_policy or (q.id is null and s.task_identifier in (
      select t.task_identifier from policy_tasks t
      join policies x on x.id = t.policy_id where x.name = p_policy)))
    and (p_partition is null or (p_policy is null and q.key = p_partition)
      or (s.partition_id = _partition_id(p_policy, p_partition)
        and (s.due or not s.due)));   -- true of all: by it PostgreSQL uses the two indexes that the jobs of a partition are in
$$;
