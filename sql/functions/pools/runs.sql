-- What a pool says that it runs, after a promotion or a silence.

-- After a promotion: what is admitted and not locked may run all the same, because its fetch was lost. So until the pools have said
-- what they run, it is not to be fetched. Pools fetch nothing before their first heartbeat on a new server, which calls this.
create or replace function _postpone_unlocked() returns void language plpgsql volatile
set lock_timeout = '1s' as $$
begin
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array_agg(j.id), run_at => _postponed_until())
  from in_flight_jobs f
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
  where j.locked_at is null and j.run_at < _postponed_until();
end
$$;

create or replace function _postponed_until() returns timestamptz language sql stable as $$
  select to_timestamp(s.last_value / 1000.0) + interval '6 seconds' from promoted_at s;
$$;

-- Keeps the slots of the jobs that a pool says it runs, and leaves those of others that it had to sweeps.
--
-- The danger: a pool is late. Its job was unlocked meanwhile, and runs or has run elsewhere. The cure: Graphile Worker's row
-- tells whose it is. Only after a promotion may it run all the same: it has no row, because it was added in what the promotion has
-- lost, or nobody has the row locked, because its fetch was lost. Then it is lent, so that nobody fetches it. A row with a key or a
-- queue is not: others may replace it under its key, or run beside it. Of two pools that say so, the later attempt counts.
--
--   p_runs   json array of { "job", "revision", "attempt", "admission", "stagedId", "lockedAt": see _keeps_job }
--   p_anew   the server is another one than before. What the pool runs has its slots once it has said it again, without this
--   p_gone   what has ended since it said so before: it has no row, and no other end frees its slots
--   state    'lost': it has no slot, though it runs, and the pool calls _occupy_run. 'elsewhere': others have its row, and the
--            pool must not end it
create or replace function _say_runs(p_pool_id text, p_server text, p_runs json, p_anew boolean, p_gone bigint[])
returns table (id bigint, state text) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
declare
  v_kept bigint[];
  v_unlocked bigint[];
begin
  select coalesce(array_agg(r.job) filter (where w.is_kept or w.is_unlocked), '{}'), array_agg(r.job) filter (where w.is_unlocked)
  into v_kept, v_unlocked
  from json_to_recordset(p_runs) as r (job bigint, revision int, attempt int, "lockedAt" timestamptz)
  left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = r.job
  left join in_flight_jobs f on f.job_id = r.job
  cross join lateral (
    select _keeps_job(r.job, r.attempt, p_pool_id, r."lockedAt") or (j.id is null and (p_anew or f.pool_id = p_pool_id)) as is_kept,
      p_anew and j.locked_at is null and j.key is null and j.queue_name is null
        and j.revision = r.revision and f.revision = r.revision as is_unlocked) w;
  perform _keep_runs(p_pool_id, p_runs, v_kept, p_gone);
  if p_anew then
    perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array_agg(r.job), attempts => r.attempt)   -- as its fetch did
    from json_to_recordset(p_runs) as r (job bigint, attempt int) where r.job = any(v_unlocked) group by r.attempt;
    perform _lend(p_pool_id, v_unlocked, true);
  else
    update workers w set server = p_server where w.pool_id = p_pool_id;
    if _meet_server() then
      perform _fetch_postponed();
    end if;
  end if;
  return query
  select r.job, case when r.job = any(v_kept) then 'lost' else 'elsewhere' end
  from json_to_recordset(p_runs) as r (job bigint)
  where p_anew and (r.job <> all (v_kept) or not exists (select from in_flight_jobs f where f.job_id = r.job));
end
$$;

-- All pools have said what they run.
create or replace function _fetch_postponed() returns void language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select j.id from in_flight_jobs f
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    where j.locked_at is null and j.run_at = _postponed_until());
begin
  if v_ids <> '{}' then
    perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(v_ids, run_at => clock_timestamp());
    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', cardinality(v_ids))::text);
  end if;
end
$$;

-- Unlocks the jobs that a pool has locked for so long and does not have, because the answer to its fetch was lost, and those that
-- ended in what a promotion has lost: these wait for their gates again, because what ran since may have their slots. Completes
-- those that have ended well without being recorded. Returns how many, and which are lent. What was lent and is not had any more
-- counts as if it were locked.
--
-- Graphile Worker unlocks all jobs of a pool or none. So those that it runs are unlocked as well, and lent: see _lend. So are those
-- with a slot that have just ended well, because they would run again past the limits, if others have the slots by now. It may not
-- do so while it has such a job of a queue, because the next one would run beside, or one with a key, because the next one of the key
-- would get its row. Nor while Graphile Worker is recording ends: a failure needs the lock, and a late one would end the next
-- attempt. Nor while a local queue has a job in its last attempt, which an unlocked one does not get back. Then `is_left`: it
-- tries again later.
--
-- No job of the pool starts while this runs, and afterwards each asks whether it is still its pool's.
--
--   p_running     jobs that it runs
--   p_fetched     jobs that it has besides: in a local queue, or ended well and perhaps being recorded
--   p_recording   jobs that have ended, and whose end may be being recorded
--   p_lost        jobs that had ended for long before a promotion, which has lost that
--   p_ended       json array of { "job", "revision" }: those that have ended well. A row of another revision is the next job's of the key
create or replace function _give_up_locks(
  p_pool_id text, p_running bigint[], p_fetched bigint[], p_recording bigint[], p_lost bigint[], p_ended json, p_after interval,
  out unlocked int, out completed int, out lent bigint[], out is_left boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
declare
  v_ids bigint[];   -- locked or lent, and not had
  v_lent bigint[] := array(   -- of these
    select f.job_id from in_flight_jobs f
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    where f.pool_id = p_pool_id and f.job_id <> all (p_running || p_fetched || p_recording)
      and j.locked_at is null and j.run_at = f.lent_until + interval '1 second');
  v_attempts int[];
  v_unlocks boolean;
  v_ended bigint[] := array(
    select e.job from json_to_recordset(p_ended) e (job bigint, revision int)
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = e.job and j.revision = e.revision);
begin
  unlocked := 0; completed := 0; lent := '{}'; is_left := false;
  select coalesce(array_agg(j.id order by j.id), '{}'), coalesce(array_agg(j.attempts::int order by j.id), '{}')
  into v_ids, v_attempts
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join workers w on w.pool_id = p_pool_id
  where j.id = any(v_lent) or (j.locked_by = p_pool_id and j.id <> all (p_running || p_fetched) and (j.id = any(p_lost)
    or (j.id <> all (p_recording) and j.locked_at + coalesce(w.clock_behind, '0') < clock_timestamp() - p_after)));
  if v_ids = '{}' then
    return;
  end if;
  v_unlocks := not v_ids <@ v_lent;
  is_left := v_unlocks and exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.locked_by = p_pool_id and case
      when j.id = any(p_running) or (j.id = any(p_fetched) and j.id = any(v_ended)) then j.queue_name is not null or j.key is not null
      when j.id = any(p_fetched) then j.attempts >= j.max_attempts
      else j.id = any(p_recording) and j.id <> all (p_lost) end);
  if is_left then
    return;
  end if;
  lent := array(
    select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    where v_unlocks and j.locked_by = p_pool_id and (j.id = any(p_running)
      or (j.id = any(p_fetched) and j.id = any(v_ended) and exists (select from in_flight_jobs f where f.job_id = j.id))));
  v_ended := array(select u.id from unnest(v_ended) u (id) where u.id = any(v_ids) and u.id <> all (p_lost));
  if exists (select from in_flight_jobs f where f.job_id = any(v_ended)) then   -- the release was lost as well
    perform _release((
      select json_agg(json_build_object('job', f.job_id, 'admission', f.admission, 'ok', true))
      from in_flight_jobs f where f.job_id = any(v_ended)), null);
  end if;
  if v_unlocks then
    perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(array[p_pool_id]);
    perform _lend(p_pool_id, lent, true);
  end if;
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(v_lent, run_at => clock_timestamp());
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
