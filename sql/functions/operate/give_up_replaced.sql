-- A failed job that waited parked for its retry lost its place to a newer one of its key, and keeps its row for that one.
-- When the newer one leaves staging without running, nothing would ever run or end the parked one: it fails for good.
create or replace function :DISPATCH_POLICY_SCHEMA._give_up_replaced(p_job_keys text[]) returns void
language sql volatile as $$
  select :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array_agg(j.id), 'replaced under its job key')
  from unnest(p_job_keys) u (key)
  cross join lateral (
    select x.id, x.last_error from :GRAPHILE_WORKER_SCHEMA.jobs x
    where x.key = u.key and x.run_at = 'infinity' and x.locked_at is null and x.attempts between 1 and x.max_attempts - 1
    limit 1) j
  where not exists (select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.parked_job_id = j.id or s.job_key = u.key)
    and not exists (select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = j.id)
  having count(*) > 0;
$$;
