-- A row of Graphile Worker's as its documented columns. A parked job has the time and priority of its staged row. Not by way of
-- JSON, because as a part of other JSON PostgreSQL refuses some payloads that it stores.
create or replace function _as_job(
  p_job record, p_run_at timestamptz default null, p_priority int default null
) returns :DISPATCH_POLICY_SCHEMA.db_job language plpgsql stable as $$
begin
  return row(p_job.id, p_job.job_queue_id, p_job.task_id, p_job.payload, coalesce(p_priority, p_job.priority),
    coalesce(p_run_at, p_job.run_at), p_job.attempts, p_job.max_attempts, p_job.last_error, p_job.created_at,
    p_job.updated_at, p_job.key, p_job.revision, p_job.locked_at, p_job.locked_by, p_job.flags,
    p_job.is_available):::DISPATCH_POLICY_SCHEMA.db_job;
end
$$;
