-- Takes an attempt off parked jobs whose run asked to come back later: it does not count. A flush may come again, and takes
-- off no second one.
create or replace function _refund_attempts(
  p_jobs finished_job[], p_parked_ids bigint[]
) returns void language plpgsql as $$
begin
  perform from unnest(p_jobs) f
  cross join lateral (   -- one look at the index for each
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job limit 1) j
  cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[j.id], attempts => j.attempts - 1)
  where (f.retry).refund and j.id = any(p_parked_ids) and j.attempts = (f.retry).attempt;
end
$$;
