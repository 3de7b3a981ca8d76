-- A pool answers that it still runs a job, see _start_attempt.
create or replace function _still_runs(
  p_job_id bigint, p_admission bigint, p_attempt int, p_pool_id text
) returns void language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  update in_flight_jobs f set attempt = p_attempt, pool_id = p_pool_id
  where f.job_id = p_job_id and f.admission = p_admission and f.pool_id is null;
end
$$;
