-- The staged row of a job that was parked, if Graphile Worker's row still has that job. Null: there is none.
create or replace function _parked_row_of(p_job_id bigint) returns bigint language sql stable as $$
  select s.id from staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
  where s.parked_job_id = p_job_id
    and _is_row_of(s.parked_revision, s.id, j.revision, j.flags);
$$;
