-- Jobs that have run for longer than their policy's slot_timeout: their slots are to be given back. A job that waits in
-- Graphile Worker does not run. One that waits in a worker's local queue counts as running from its fetch. When it starts,
-- it notes that, and asks whether it still has its slot.
--
-- By the time of the release the slot may belong to a later attempt, or to the next job of its key in the same row. So
-- admission and attempt are returned, and the release names them.
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
