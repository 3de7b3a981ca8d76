-- The rows of jobs that were not added: what the caller gave, without an id.
create or replace function _not_added(p_policy text, p_partitions json, p_jobs json)
returns setof staging language sql stable as $$
  select j.n, true, null::bigint, j.task, j."queueName", _run_at(j."runAt"), _max_attempts(j."maxAttempts"),
    j."jobKey", coalesce(j.priority, 0), j.flags, now(), p_policy,
    p_partitions -> j.p ->> 'key', p_partitions -> j.p ->> 'shard', null::json, false
  from _job_records(p_jobs) j;
$$;
