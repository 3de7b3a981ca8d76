-- Lets failed jobs end for good that an operator has cancelled, whatever is said of their retry. Their own process may not
-- know yet, or has died, and a sweep releases them. Such a failure says nothing of the partner: else a cancel of a tenant's
-- jobs would open the breaker for those that come next.
--
-- The danger: a cancel marks a row after somebody has looked at it, and before that row is deleted. Then the job would be
-- staged again. The cure: the rows are locked, so that a cancel waits, and finds the staged job.
--
--   left_ids   another transaction has the row locked, so these come again with the next flush
create or replace function _end_cancelled(
  p_jobs finished_job[],
  out jobs finished_job[], out left_ids bigint[]
) language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(array(select j.job from unnest(p_jobs) j where j.retries or not j.ok)));
  v_locked bigint[];
  v_cancelled bigint[];
begin
  select coalesce(array_agg(x.job_id), '{}'), coalesce(array_agg(x.job_id) filter (where x.cancelled_at is not null), '{}')
  into v_locked, v_cancelled
  from (
    select f.job_id, f.cancelled_at from in_flight_jobs f
    where f.job_id = any(v_ids) order by f.job_id for update skip locked
  ) x;
  left_ids := array(select unnest(v_ids) except select unnest(v_locked));
  if v_cancelled = '{}' then
    jobs := array(select j from unnest(p_jobs) j where j.job <> all (left_ids) order by j.job);
    return;
  end if;
  jobs := array(
    select case when j.job = any(v_cancelled) and (j.retries or not j.ok) then
        row(j.job, j.task, j.admission, j.ok, j.lag_ms, j.duration_ms, j.attempt, j.ends, true,
          row(coalesce((j.retry).attempt, nullif(j.attempt, 0), g.attempts), coalesce((j.retry).revision, g.revision), true,
            null, null, null, null, null, null, null, null)::retry,
          j.ordinality, j.error, j.settled, j.staged_id, true)::finished_job
      else j end
    from unnest(p_jobs) j
    left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = j.job and g.id = any(v_cancelled)
    where j.job <> all (left_ids) order by j.job);
end
$$;
