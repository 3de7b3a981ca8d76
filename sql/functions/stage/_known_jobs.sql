-- For each of these jobs whose key is taken, the job that has the key. If that job is outside the policy, the row says
-- only that the new job was not added, and has no id. A role that may add jobs of this policy must not read others.
create or replace function _known_jobs(p_policy text, p_partitions json, p_jobs json)
returns setof staging language sql stable as $$
  select j.n, true, e.id, j.task, e.queue_name, e.run_at, e.max_attempts, e.job_key, e.priority, e.flags, e.created_at,
    p_policy, coalesce(q.key, k.key), coalesce(q.shard, k.shard), null::json, false
  from _job_records(p_jobs) j
  cross join lateral _jobs_of_key(j."jobKey") e
  left join partitions q on q.id = e.partition_id
  -- if it is not routed yet, only this call knows it
  left join lateral (
    select p_partitions -> j.p ->> 'key' as key, coalesce(p_partitions -> j.p ->> 'shard', 'default') as shard
    where _partition_id(p_policy, p_partitions -> j.p ->> 'key') = e.partition_id
  ) k on true
  where _has_task(p_policy, e.task)
  union all
  select n.* from _not_added(p_policy, p_partitions, p_jobs) n
  cross join lateral _jobs_of_key(n.job_key) e
  where not _has_task(p_policy, e.task);
$$;
