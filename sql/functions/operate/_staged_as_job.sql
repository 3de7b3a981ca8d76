-- A staged job with the columns of a row of Graphile Worker's, as Graphile Worker's own verbs return jobs.
create or replace function _staged_as_job(p_job staged_jobs)
returns :DISPATCH_POLICY_SCHEMA.db_job language sql stable as $$
  select (p_job.id, null, null, p_job.payload, p_job.priority, p_job.run_at, 0,
    _max_attempts(p_job.max_attempts),
    p_job.error, p_job.created_at, p_job.created_at, p_job.job_key, 0, null, null,
    (select jsonb_object_agg(f.flag, true) from unnest(p_job.flags) f (flag)), true)
    :::DISPATCH_POLICY_SCHEMA.db_job;
$$;
