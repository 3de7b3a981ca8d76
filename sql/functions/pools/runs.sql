-- What a pool says that it runs, after a promotion or a silence.

-- Keeps the slots of the jobs that a pool says it runs, and leaves those of others that it had to sweeps. Returns those of them that
-- have no slot, though they run: the pool calls _occupy_run for each. From here on it is known on this server, see _meet_server.
--
-- The danger: a pool is late. Its job was unlocked meanwhile, and runs or has run elsewhere. The cure: Graphile Worker's row
-- tells whose it is. Only after a promotion may it be without one and run all the same, because it was added in what the
-- promotion has lost. Of two pools that say so, the later attempt counts.
--
--   p_runs   json array of { "job", "revision", "attempt", "admission", "stagedId", "lockedAt": see _keeps_job }
--   p_anew   the server is another one than before
create or replace function _say_runs(p_pool_id text, p_server text, p_runs json, p_anew boolean)
returns setof bigint language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
declare
  v_ids bigint[] := array(
    select r.job
    from json_to_recordset(p_runs) as r (job bigint, attempt int, "lockedAt" timestamptz)
    where _keeps_job(r.job, r.attempt, p_pool_id, r."lockedAt")
      or (p_anew and not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = r.job)));
begin
  perform _keep_runs(p_pool_id, p_runs, v_ids);
  update workers w set server = p_server where w.pool_id = p_pool_id;
  return query
  select u.id from unnest(v_ids) u (id) where not exists (select from in_flight_jobs f where f.job_id = u.id);
end
$$;

-- Unlocks the jobs that a pool has locked for so long and does not have, because the answer to its fetch was lost, and those that
-- ended in what a promotion has lost: these wait for their gates again, because what ran since may have their slots. Completes
-- those that have ended well without being recorded. Returns how many, and which are lent.
--
-- Graphile Worker unlocks all jobs of a pool or none. So those that it runs are unlocked as well, and lent: see _lend. It may not
-- do so while it runs a job of a queue, because the next one would run beside, or one with a key, because the next one of the key
-- would get its row. Nor while Graphile Worker is recording ends: a failure needs the lock, and a late one would end the next
-- attempt. Nor while a local queue has a job in its last attempt, which an unlocked one does not get back. Then `is_left`: it
-- tries again later.
--
-- No job of the pool starts while this runs, and afterwards each asks whether it is still its pool's.
--
--   p_running     jobs that it runs
--   p_fetched     jobs that it has besides, in a local queue
--   p_recording   jobs that have ended, and whose end may be being recorded
--   p_lost        jobs that had ended for long before a promotion, which has lost that
--   p_ended       json array of { "job", "revision" }: others that have ended well. A row of another revision is the next job's of the key
create or replace function _give_up_locks(
  p_pool_id text, p_running bigint[], p_fetched bigint[], p_recording bigint[], p_lost bigint[], p_ended json, p_after interval,
  out unlocked int, out completed int, out lent bigint[], out is_left boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
declare
  v_ids bigint[];   -- locked, and not had
  v_attempts int[];
  v_ended bigint[];
begin
  unlocked := 0; completed := 0; lent := '{}'; is_left := false;
  select coalesce(array_agg(j.id order by j.id), '{}'), coalesce(array_agg(j.attempts::int order by j.id), '{}')
  into v_ids, v_attempts
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join workers w on w.pool_id = p_pool_id
  where j.locked_by = p_pool_id and j.id <> all (p_running) and j.id <> all (p_fetched) and (j.id = any(p_lost)
    or (j.id <> all (p_recording) and j.locked_at + coalesce(w.clock_behind, '0') < clock_timestamp() - p_after));
  if v_ids = '{}' then
    return;
  end if;
  is_left := exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.locked_by = p_pool_id and case
      when j.id = any(p_running) then j.queue_name is not null or j.key is not null
      when j.id = any(p_fetched) then j.attempts >= j.max_attempts
      else j.id = any(p_recording) and j.id <> all (p_lost) end);
  if is_left then
    return;
  end if;
  v_ended := array(
    select e.job from json_to_recordset(p_ended) e (job bigint, revision int)
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = e.job and j.revision = e.revision
    where e.job = any(v_ids) and e.job <> all (p_lost));
  if exists (select from in_flight_jobs f where f.job_id = any(v_ended)) then   -- the release was lost as well
    perform _release((
      select json_agg(json_build_object('job', f.job_id, 'admission', f.admission, 'ok', true))
      from in_flight_jobs f where f.job_id = any(v_ended)), null);
  end if;
  lent := array(
    select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = p_pool_id and j.id = any(p_running));
  perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(array[p_pool_id]);
  perform _lend(p_pool_id, lent, true);
  completed := (select count(*) from :GRAPHILE_WORKER_SCHEMA.complete_jobs(v_ended));
  unlocked := cardinality(v_ids) - completed;
  perform _complete_copied(v_ids);
  if exists (select from in_flight_jobs f where f.job_id = any(p_lost) and f.job_id = any(v_ids)) then
    perform _release(coalesce((
      select json_agg(json_strip_nulls(json_build_object('job', f.job_id, 'admission', f.admission, 'retry', row(
        j.attempts, j.revision, null, null, 0, j.task_identifier, j.priority, j.max_attempts, true, j.key, null)::retry)))
      from in_flight_jobs f
      join policies p on p.id = f.policy_id and p.retries = 'restage'
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id and j.revision = f.revision
      where f.job_id = any(p_lost) and f.job_id = any(v_ids)), '[]'), null);
  end if;
  perform _lose_runs(v_ids, v_attempts);
  perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', unlocked)::text);
end
$$;

-- Keeps jobs that a pool runs without having them locked from being fetched, for as long as a silent pool is not taken for dead.
-- The pool calls this with each heartbeat. A job with a slot is lent by its in-flight row: once that has gone, its row may wait
-- in Graphile Worker for its retry, and must not be touched.
--
-- If a run without a slot fails, Graphile Worker records nothing, and it runs again when its time has come.
--
--   p_begins   they had been locked until now
create or replace function _lend(p_pool_id text, p_job_ids bigint[], p_begins boolean default false)
returns void language plpgsql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '100ms' as $$
declare
  v_until timestamptz := clock_timestamp() + coalesce((select w.stale_after from workers w where w.pool_id = p_pool_id), '1 minute');
begin
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
    _lend_slots(p_pool_id, p_job_ids, v_until, p_begins), run_at => v_until + interval '1 second');
end
$$;
