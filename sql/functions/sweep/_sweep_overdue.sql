-- Jobs that have run for longer than their policy's slot_timeout: their slots are to be given back. A job that waits in
-- Graphile Worker does not run. One that waits in a worker's local queue counts as running from its fetch, until it notes
-- its start: it asks then whether it still has its slot. Admission and attempt are named, so that a release that comes later does not give back the
-- slot of a later attempt, or of another job that has taken the row's place under its key.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_overdue()
returns table (job_id bigint, admission bigint, attempt int) language sql stable
set search_path = pg_catalog, pg_temp as $$
  select f.job_id, f.admission, coalesce(f.attempt, 0)::int
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.policy_id = p.id
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
  left join :DISPATCH_POLICY_SCHEMA._private_workers w on w.pool_id = j.locked_by
  where p.slot_timeout is not null
    and greatest(j.locked_at + coalesce(w.clock_behind, '0'), f.started_at)
      < clock_timestamp() - make_interval(secs => p.slot_timeout);
$$;
