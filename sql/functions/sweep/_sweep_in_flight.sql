-- Finds the slots that nobody will free. The first look only marks them, and the same sweep looks again a second later.
-- Returned are how many were marked now, and the jobs that were marked for longer than `p_grace`. The caller releases these.
--
--   p_only_marked   only jobs that a verb has marked; then nothing is marked here
create or replace function _sweep_in_flight(p_grace interval, p_only_marked boolean default false)
returns table (job_id bigint, admission bigint, attempt int, ok boolean, retry json, marked int) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
  with missing as materialized (
    select l.* from _lost_slots(case when p_only_marked then array(
      select x.job_id from in_flight_jobs x where x.missing_since = '-infinity') end) l
  ),
  -- locked rows are skipped: a release may be at them, and the two would deadlock
  marked as (
    update in_flight_jobs f set missing_since = clock_timestamp()
    where f.job_id = any(array(
      select x.job_id from in_flight_jobs x
      where not p_only_marked and x.job_id in (select m.job_id from missing m where m.missing_since is null)
      for update skip locked))
    returning 1
  ),
  back as (
    update in_flight_jobs f set missing_since = null
    where f.job_id = any(array(
      select x.job_id from in_flight_jobs x
      where not p_only_marked and x.missing_since is not null and x.job_id not in (select m.job_id from missing m) for update skip locked))
    returning 1
  )
  select m.job_id, m.admission, m.attempt, m.ok, m.retry, (select count(*)::int from marked)
  from missing m where m.missing_since <= clock_timestamp() - p_grace
  union all
  select null, null, null, null, null, (select count(*)::int from marked) where exists (select from marked) or exists (select from back);
$$;
