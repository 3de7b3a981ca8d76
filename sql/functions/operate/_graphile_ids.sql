-- Graphile Worker's ids of these jobs. A staged id gives one if the job was admitted or is
-- parked, and still has its row.
create or replace function _graphile_ids(p_ids bigint[]) returns bigint[]
language sql stable as $$
  select array(
    select u.id from unnest(p_ids) u (id) where u.id < 1000000000000000
    union select f.job_id from in_flight_jobs f
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
      where f.staged_id = any(p_ids)
        and _is_row_of(f.revision, f.staged_id, j.revision, j.flags)
    union select s.parked_job_id from staged_jobs s
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
      where s.id = any(p_ids) and s.parked_job_id is not null
        and _is_parked(
        s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags));
$$;
