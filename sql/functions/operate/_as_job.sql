-- A row of Graphile Worker's as its documented columns. A parked job has the time and priority of its staged row.
create or replace function :DISPATCH_POLICY_SCHEMA._as_job(
  p_job json, p_run_at timestamptz default null, p_priority int default null
) returns :DISPATCH_POLICY_SCHEMA.db_job language plpgsql stable as $$
declare
  v_job :DISPATCH_POLICY_SCHEMA.db_job := json_populate_record(null:::DISPATCH_POLICY_SCHEMA.db_job, p_job);
begin
  v_job.run_at := coalesce(p_run_at, v_job.run_at);
  v_job.priority := coalesce(p_priority, v_job.priority);
  return v_job;
end
$$;
