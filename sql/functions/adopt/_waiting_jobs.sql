-- A page of the jobs that wait in Graphile Worker for a task, in the order of their ids, and that adopt may move.
--
-- These are left out:
-- - Jobs that run or have failed for good.
-- - Jobs that this package admitted, parked or copied.
-- - Jobs with run_at infinity, which never start by themselves.
-- - Retries, if the policy's retries go past the gates.
--
-- A job that was unstaged after a failure still has the flag of its admission. So does one that was in flight when the
-- schema was dropped. It has neither a slot nor a staged row, so it is adopted. An admission commits with its slot.
--
-- It reads the ids in their order and stops at the limit. Without statistics the planner would sort all jobs each time:
-- 330 ms a page of 20,000 jobs.
--
-- The view locks nothing, so any of these may change at once. _adopt_jobs compares the revisions again under its locks.
create or replace function _waiting_jobs(
  p_policy policies, p_task text, p_after bigint, p_limit int
) returns waiting_job[] language sql stable
set plan_cache_mode = force_generic_plan set enable_sort = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
  select array(
    select row(
        j.id, j.revision, j.attempts::int, j.key, j.queue_name, o.was_admitted)::waiting_job
    from :GRAPHILE_WORKER_SCHEMA.jobs j
    cross join lateral (
      select j.flags is not null and _is_ours(j.flags, j.created_at, j.key) as was_admitted) o
    where j.task_identifier = p_task and j.id > p_after
      and j.locked_at is null and j.attempts < j.max_attempts and j.run_at < 'infinity'
      and (j.attempts = 0 or (p_policy).retries = 'restage')
      and not (o.was_admitted and exists (
        select from staged_jobs s where s.parked_job_id = j.id))
      -- one look at the index for each: as a join it may read all jobs in flight each time
      and (select true from in_flight_jobs f where f.job_id = j.id limit 1) is null
      and not exists (
        select from copied_jobs o
        where o.job_id = j.id and o.revision = j.revision)
    order by j.id limit p_limit);
$$;
