-- What finished since the last flush of a worker process gives back what it held, in one transaction.
--
--   p_jobs   json array of { "job": Graphile Worker's id, "ok": boolean, "lagMs": number | null,
--     "durationMs": how long it ran, where the policy's fairness is by work,
--     "attempt": the attempt that ended (null: whichever holds the slot),
--     "ends": true where Graphile Worker is recording its end just now,
--     "retry": null (no retry of ours), or, each with "attempt": the attempt that failed,
--       { "after": seconds until due, "priority", "cost", "maxAttempts", "queueName", "giveBack": true (no attempt),
--         "move": { "key", "shard", "context", "weight", "limits" } (another partition) } parks it,
--       { "after": seconds, "native": true } only sets Graphile Worker's own back-off (bypass),
--       { "giveUp": true } fails it for good }
--
-- The end of an attempt that a later one has taken the slot over from (its pool was silent for so long that the job was
-- unlocked) gives nothing back.
--
-- Returns the jobs that are dealt with, each with whether the next flush may wait (`saturated`, of _give_back); the others
-- come again with the next flush: Graphile Worker has not recorded their failure yet, or their limiters changed meanwhile.
-- A success is not waited for: what it held is free, and the ahead bound remembers it until Graphile Worker's table has it
-- no more.
--
-- Order: limiters ascending, Graphile Worker's job rows, in-flight rows. The in-flight rows are waited for: a skipped
-- one would leak its slot.
create or replace function :DISPATCH_POLICY_SCHEMA._release(p_jobs json, p_now timestamptz)
returns table (job_id bigint, saturated boolean) language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- as _route
set lock_timeout = '5s'                     -- it comes again, and with it what has finished since
as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_job_ids bigint[] := array(select j.job from :DISPATCH_POLICY_SCHEMA._finished(p_jobs) j order by j.job);
  v_limiter_ids bigint[];
  v_done bigint[];
  v_jobs json := p_jobs;
  v_stale bigint[] := '{}';
  v_ending bigint[] := '{}';
  v_saturated boolean;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'dispatch_policy: a release needs READ COMMITTED, not %', current_setting('transaction_isolation')
      using errcode = 'invalid_transaction_state';
  end if;
  v_limiter_ids := array(
    select distinct u.id from (
      select distinct f.limiter_ids from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
      where f.job_id = any(v_job_ids)
    ) f cross join unnest(f.limiter_ids) u (id));
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l
  where l.id = any(v_limiter_ids) order by l.id for no key update;
  v_now := coalesce(p_now, clock_timestamp());
  v_done := v_job_ids;
  if exists (select from :DISPATCH_POLICY_SCHEMA._finished(p_jobs) j where j.retry is not null) then
    -- a flush that came so late that Graphile Worker retried the job by itself: what it holds is the new attempt's,
    -- and so is its next back-off. (Attempts at their maximum are a job that will not be retried.)
    select coalesce(json_agg(e.entry) filter (where not e.stale), '[]'),
      coalesce(array_agg(e.job) filter (where e.stale), '{}')
    into v_jobs, v_stale
    from (
      select j.value as entry, g.id as job, coalesce(
        (j.value #>> '{retry,attempt}')::int < g.attempts and g.attempts < g.max_attempts, false)
        or coalesce((j.value #>> '{retry,attempt}')::int < f.attempt, false) as stale
      from json_array_elements(p_jobs) j
      left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = (j.value ->> 'job')::bigint
      left join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.job_id = (j.value ->> 'job')::bigint
    ) e;
    v_job_ids := array(select j.job from :DISPATCH_POLICY_SCHEMA._finished(v_jobs) j order by j.job);
    v_done := :DISPATCH_POLICY_SCHEMA._retry(v_jobs, v_job_ids, v_now);
  end if;
  if exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policies p
    where p.ahead_limiter_id = any(v_limiter_ids) and (p.ahead_auto or p.ahead is not null)
  ) then
    v_ending := array(
      select f.job from :DISPATCH_POLICY_SCHEMA._finished(v_jobs) f
      cross join lateral (   -- one look at the index for each job
        select from :GRAPHILE_WORKER_SCHEMA.jobs j
        where j.id = f.job and j.attempts = f.attempt and j.locked_at is not null limit 1) j
      where f.ok and f.ends);
  end if;
  select g.done, g.saturated into v_done, v_saturated
  from :DISPATCH_POLICY_SCHEMA._give_back(v_jobs, v_done, v_limiter_ids, v_ending, v_now) g;
  return query select u.id, v_saturated from (
    select unnest(v_done) union select s.id from unnest(v_stale) s (id) where s.id <> all (v_job_ids)) u (id);
end
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._finished(p_jobs json)
returns table (job bigint, ok boolean, "lagMs" float8, "durationMs" float8, attempt int, ends boolean, retry json, ordinality bigint)
language sql stable as $$
  select j.job, coalesce(j.ok, true), j."lagMs", j."durationMs", j.attempt, j.ends, case when json_typeof(j.retry) = 'object' then j.retry end,
    j.ordinality
  from rows from (json_to_recordset(p_jobs) as (job bigint, ok boolean, "lagMs" float8, "durationMs" float8, attempt int, ends boolean, retry json))
    with ordinality j (job, ok, "lagMs", "durationMs", attempt, ends, retry, ordinality);
$$;
