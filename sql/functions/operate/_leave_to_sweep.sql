-- Marks the in-flight rows of these jobs, so that the next sweep frees their slots. To free them here would lock
-- limiters until the application's transaction commits, and stop all who use them. The rows are locked in the order in
-- which releases lock them, because in another order the two deadlock.
create or replace function _leave_to_sweep(p_job_ids bigint[]) returns void
language sql volatile as $$
  update in_flight_jobs f set missing_since = '-infinity'
  where f.job_id = any(array(
    select x.job_id from in_flight_jobs x
    where x.job_id = any(p_job_ids) order by x.job_id for update));
$$;
