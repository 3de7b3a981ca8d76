-- The job of this key, staged or in Graphile Worker. A job that this package admitted has its staged id.
create or replace function _jobs_of_key(p_key text)
returns table (
  id bigint, queue_name text, run_at timestamptz, max_attempts int, job_key text, priority int, flags text[],
  created_at timestamptz, partition_id uuid, task text
) language sql stable as $$
  select s.id, s.queue_name, s.run_at, _max_attempts(s.max_attempts), s.job_key, s.priority::int, s.flags,
    s.created_at, s.partition_id, s.task_identifier
  from staged_jobs s where s.job_key = p_key
  union all
  select coalesce(f.staged_id, j.id), j.queue_name, j.run_at, j.max_attempts::int, j.key, j.priority::int,
    array(select k from jsonb_object_keys(j.flags) k), j.created_at, f.partition_id, j.task_identifier
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join in_flight_jobs f on f.job_id = j.id
  where j.key = p_key
  limit 1;
$$;
