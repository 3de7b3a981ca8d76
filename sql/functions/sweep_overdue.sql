-- Jobs that have run for longer than their policy's slot_timeout: their slots are to be given back. A job that waits in
-- Graphile Worker does not run.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_overdue() returns table (job_id bigint)
language sql stable
set search_path = pg_catalog, pg_temp as $$
  select f.job_id
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.policy_id = p.id
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
  left join :DISPATCH_POLICY_SCHEMA._private_workers w on w.pool_id = j.locked_by
  where p.slot_timeout is not null and j.locked_at < clock_timestamp() - make_interval(secs => p.slot_timeout)
    - coalesce(w.clock_behind, '0');
$$;
