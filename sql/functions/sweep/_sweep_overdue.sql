-- Jobs that have run for longer than their policy's slot_timeout: the caller frees their slots. A job that waits in
-- Graphile Worker does not run. One that waits in a worker's local queue counts as running from its fetch. When it starts,
-- its start is recorded, and it checks whether it still has its slot.
--
-- If the database's clock steps an hour ahead, every job looks overdue, and its successor would run beside it. So the time
-- counts only while the heartbeats of the job's worker pool are unbroken, which a step breaks. A silent pool's jobs are
-- left to _sweep_workers. A pool without heartbeats does not have this package: its jobs count from their fetch.
--
-- By then the slot may belong to a later attempt, or to the next job of the key in the same row. So admission and attempt
-- are returned, and the release names them.
create or replace function _sweep_overdue()
returns table (job_id bigint, admission bigint, attempt int) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, coalesce(f.attempt, 0)::int
  from policies p
  join in_flight_jobs f on f.policy_id = p.id
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
  left join workers w on w.pool_id = j.locked_by
  where p.slot_timeout is not null
    and greatest(j.locked_at + coalesce(w.clock_behind, '0'), f.started_at, w.unbroken_since)
      < clock_timestamp() - make_interval(secs => p.slot_timeout)
    and (w.heartbeat_at + w.stale_after / 2 < clock_timestamp()) is not true;
$$;
