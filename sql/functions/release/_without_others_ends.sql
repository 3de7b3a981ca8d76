-- Leaves out the ends of jobs whose retry is not theirs to decide. A flush may come so late that Graphile Worker has
-- retried the job by itself. Then the slot and the next back-off belong to the new attempt. (A job whose attempts are at
-- their maximum is not retried.) If the row has fewer attempts, it has the next job of the key.
--
-- The worker pool of those left out does not run them any more. Their in-flight rows lose the pool, so that a sweep finds
-- them if the job leaves Graphile Worker.
create or replace function _without_others_ends(
  p_jobs finished_job[]
) returns finished_job[] language plpgsql as $$
declare
  v_own finished_job[] := array(
    select j from unnest(p_jobs) j
    left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = j.job
    left join in_flight_jobs f on f.job_id = j.job
    where (j.retry).attempt is null or (
      _is_end_of(j.admission, (j.retry).attempt, f.admission, f.attempt)
      and not coalesce((j.retry).attempt < g.attempts and g.attempts < g.max_attempts, false)
      -- an attempt that does not count is taken off with the first flush, and the slot may go with the next
      and not coalesce((j.retry).attempt > g.attempts + case when (j.retry).refund then 1 else 0 end, false))
    order by j.job);
begin
  update in_flight_jobs f set pool_id = null
  where f.job_id = any(array(
    select x.job_id from unnest(p_jobs) j
    join in_flight_jobs x on x.job_id = j.job and x.admission = j.admission
    where x.pool_id is not null and j.job not in (select k.job from unnest(v_own) k) for update of x skip locked));
  return v_own;
end
$$;
