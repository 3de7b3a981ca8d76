-- The admission whose slot is still occupied by a job's row. A job of a task without a policy has replaced the admitted job
-- there.
create or replace function _replaced_admission(p_job_id bigint, p_revision int) returns bigint
language sql stable set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.admission from in_flight_jobs f
  where f.job_id = p_job_id and f.revision < p_revision;
$$;
