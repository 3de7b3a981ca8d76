-- Unlocks the jobs of worker pools that are dead, so that others run them at once. A pool is dead if it has been silent for
-- longer than it said it would be.
--
-- The jobs keep their slots, which now belong to their next attempts. If the pool was only stopped for a while, the late
-- end of its own attempt frees nothing. Its next heartbeat says that it lives.
--
-- A dead pool's row is kept for a week. A pool that was stopped may go on, fetch jobs, and be killed before its next
-- heartbeat. Then its jobs are locked by a pool that nobody would know of. The row of a pool that ended is kept for ten
-- minutes.
--
-- After a database was away, every pool looks dead. So the pool that sweeps buries another only if its own heartbeats were
-- unbroken for as long as the other one's had time to come.
--
-- A time further ahead than a heartbeat explains comes from a clock that was ahead. It is lowered. Otherwise it would keep
-- a dead pool alive, or keep a living one from judging.
--
-- Graphile Worker locks jobs, and the queues they are in, by the id of the pool.
create or replace function _sweep_workers(p_pool_id text)
returns table (pools int, jobs int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_pool_ids text[];
  v_job_ids bigint[];
  v_attempts int[];
begin
  update workers w set
    heartbeat_at = least(w.heartbeat_at, clock_timestamp()), stale_at = clock_timestamp() + w.stale_after,
    unbroken_since = least(w.unbroken_since, clock_timestamp()),
    buried_at = case when w.buried_at is not null then least(w.buried_at, clock_timestamp()) end
  where w.pool_id = any(array(
    select x.pool_id from workers x
    where x.stale_at > clock_timestamp() + x.stale_after + interval '1 second'
      or x.heartbeat_at > clock_timestamp() + interval '1 second'
      or x.unbroken_since > clock_timestamp() + interval '1 second'
    order by x.pool_id for update skip locked));
  v_pool_ids := array(
    select w.pool_id from workers w
    where w.stale_at < clock_timestamp()
      and (w.buried_at is null or exists (
        select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = w.pool_id))
      and exists (
      select from workers judge
      where judge.pool_id = p_pool_id and judge.heartbeat_at + judge.stale_after / 2 > clock_timestamp()
        and judge.unbroken_since + greatest(judge.stale_after, w.stale_after) <= clock_timestamp())
    order by w.pool_id for update skip locked);
  select coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.attempts::int), '{}') into v_job_ids, v_attempts
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = any(v_pool_ids);
  pools := cardinality(v_pool_ids);
  jobs := cardinality(v_job_ids);
  if pools > 0 then
    perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(v_pool_ids);
    perform _complete_copied(v_job_ids);   -- before anybody else sees them unlocked
    perform from in_flight_jobs f
    where f.job_id = any(v_job_ids) order by f.job_id for update;
    update in_flight_jobs f set attempt = u.attempt + 1, pool_id = null, started_at = null
    from unnest(v_job_ids, v_attempts) u (job_id, attempt) where f.job_id = u.job_id;
    update workers w set buried_at = clock_timestamp() where w.pool_id = any(v_pool_ids);
  end if;
  delete from workers w
  where w.buried_at < clock_timestamp() - case when w.ended then interval '10 minutes' else interval '7 days' end;
  if jobs > 0 then
    -- unlocking notifies no worker
    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', jobs)::text);
  end if;
  return next;
end
$$;
