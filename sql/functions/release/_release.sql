-- What finished since the last flush of a worker process gives back what it held, in one transaction.
--
--   p_jobs   json array of
--     { "job": Graphile Worker's id,
--     "admission": which one of that row (null: whichever),
--     "ok": boolean (null: nobody saw its end, and it counts as neither), "lagMs": number | null,
--     "durationMs": how long it ran, where the policy's fairness is by work,
--     "attempt": the attempt that ended (null: whichever holds the slot),
--     "ends": true where Graphile Worker is recording its end just now,
--     "retry": how it is tried again, see _private_retry; null: it ended, or Graphile Worker retries it }
--
-- A slot belongs to an admission and an attempt, and a release names both, because others may have the slot by now.
-- If a pool was silent for so long that its job was unlocked, a later attempt has taken the slot over. Then the end of
-- the earlier attempt gives nothing back. Nor does the end of a job if another one of its key was admitted in its row
-- since.
--
--   left_ids    these come again with the next flush: Graphile Worker has not recorded their failure yet, their
--     limiters changed meanwhile, or another transaction holds one of these rows
--   saturated   the next flush may wait, see _give_back
--
-- A success is not waited for: what it held is free, and the ahead bound remembers it until Graphile Worker's table has
-- it no more.
--
-- Order: limiters ascending, Graphile Worker's job rows, in-flight rows. Each is waited for only for a moment: an
-- application's open transaction delays the jobs it touches, and no others.
create or replace function :DISPATCH_POLICY_SCHEMA._release(
  p_jobs json, p_now timestamptz, out left_ids bigint[], out saturated boolean
) language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '250ms'
as $$
declare
  v_now timestamptz;
  v_jobs :DISPATCH_POLICY_SCHEMA._private_finished_job[] := array(
    select j from :DISPATCH_POLICY_SCHEMA._finished(p_jobs) j order by j.job);
  v_job_ids bigint[] := array(select j.job from unnest(v_jobs) j);
  v_limiter_ids bigint[] := array(
    select distinct u.id from (
      select distinct f.limiter_ids from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
      where f.job_id = any(v_job_ids)
    ) f cross join unnest(f.limiter_ids) u (id));
  v_told :DISPATCH_POLICY_SCHEMA._private_finished_job[];
  v_ending bigint[] := '{}';
  v_left bigint[] := '{}';
  v_free bigint[];
begin
  perform :DISPATCH_POLICY_SCHEMA._check_isolation('a release');
  -- before the limiters are locked, so that nobody waits for it: whoever reads them again looks which are left
  if exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policies p
    where p.ahead_limiter_id = any(v_limiter_ids) and (p.ahead_auto or p.ahead is not null)
  ) then
    v_ending := array(
      select f.job from unnest(v_jobs) f
      cross join lateral (   -- one look at the index for each job
        select from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id = f.job and j.attempts = f.attempt and j.locked_at is not null limit 1) j
      where f.ok and f.ends);
  end if;
  begin
    perform from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(v_limiter_ids) order by l.id for no key update;
  exception when lock_not_available then
    v_limiter_ids := array(
      select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
      where l.id = any(v_limiter_ids) order by l.id for no key update skip locked);
    v_left := array(
      select f.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
      where f.job_id = any(v_job_ids) and not f.limiter_ids <@ v_limiter_ids);
    v_jobs := array(select j from unnest(v_jobs) j where j.job <> all (v_left) order by j.job);
    v_job_ids := array(select j.job from unnest(v_jobs) j);
  end;
  v_now := coalesce(p_now, clock_timestamp());
  if exists (select from unnest(v_jobs) j where j.retries) then
    -- a flush that came so late that Graphile Worker retried the job by itself: what it holds is the new attempt's,
    -- and so is its next back-off. (Attempts at their maximum are a job that will not be retried.) With fewer attempts
    -- another one has taken its place under its key.
    v_told := v_jobs;
    v_jobs := array(
      select j from unnest(v_jobs) j
      left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = j.job
      left join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.job_id = j.job
      where (j.retry).attempt is null or not (
        coalesce(j.admission <> f.admission, false)
        or coalesce((j.retry).attempt < g.attempts and g.attempts < g.max_attempts, false)
        or coalesce((j.retry).attempt > g.attempts, false)
        or coalesce((j.retry).attempt < f.attempt, false))
      order by j.job);
    -- its pool does not run it any more: should it leave Graphile Worker, a sweep finds the slot
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set pool_id = null
    where f.job_id = any(array(
      select x.job_id from unnest(v_told) j
      join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x on x.job_id = j.job and x.admission = j.admission
      where x.pool_id is not null and j.job not in (select k.job from unnest(v_jobs) k) for update of x skip locked));
    -- one that ran twice, because somebody took its attempts off, may have failed as the same attempt: its last end counts
    v_left := v_left || :DISPATCH_POLICY_SCHEMA._retry(array(
      select distinct on (j.job) j from unnest(v_jobs) j where j.retries order by j.job, j.ordinality desc), v_now);
    v_job_ids := array(select j.job from unnest(v_jobs) j where j.job <> all (v_left));
  end if;
  begin
    select v_left || g.left_ids, g.saturated into left_ids, saturated
    from :DISPATCH_POLICY_SCHEMA._give_back(v_jobs, v_job_ids, v_limiter_ids, v_ending, v_now) g;
  exception when lock_not_available then
    v_free := array(
      select f.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
      where f.job_id = any(v_job_ids) order by f.job_id for update skip locked);
    select v_left || g.left_ids || array(
        select f.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
        where f.job_id = any(v_job_ids) and f.job_id <> all (v_free)), g.saturated
    into left_ids, saturated
    from :DISPATCH_POLICY_SCHEMA._give_back(v_jobs, v_free, v_limiter_ids, v_ending, v_now) g;
  end;
end
$$;
