-- The rows of jobs that were not added: what the caller gave, without an id.
create or replace function :DISPATCH_POLICY_SCHEMA._not_added(p_policy text, p_partitions json, p_jobs json)
returns setof :DISPATCH_POLICY_SCHEMA._private_staging language sql stable as $$
  select j.n, true, null::bigint, j.task, j."queueName", :DISPATCH_POLICY_SCHEMA._run_at(j."runAt"), :DISPATCH_POLICY_SCHEMA._max_attempts(j."maxAttempts"),
    j."jobKey", coalesce(j.priority, 0), j.flags, now(), p_policy,
    p_partitions -> j.p ->> 'key', p_partitions -> j.p ->> 'shard', null::json, false
  from :DISPATCH_POLICY_SCHEMA._job_records(p_jobs) j;
$$;
