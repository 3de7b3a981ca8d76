-- Changes when and how jobs run. A staged job keeps waiting for its gates; `attempts` has no effect on a job that never
-- ran. A job that was admitted before passes its gates again.
create or replace function :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
  job_ids bigint[], run_at timestamptz default null, priority int default null, attempts int default null,
  max_attempts int default null
) returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_moved_ids bigint[];
  v_parked_ids bigint[];
  v_id bigint;
  v_job :DISPATCH_POLICY_SCHEMA.db_job;
  v_adopted_ids bigint[];
begin
  perform _before_change(job_ids);
  with moved as (
    update staged_jobs s set
      run_at = case when reschedule_jobs.run_at is null then s.run_at
        else _run_at(reschedule_jobs.run_at) end,
      run_at_given = s.run_at_given or reschedule_jobs.run_at is not null,
      due = coalesce(reschedule_jobs.run_at, s.run_at) <= clock_timestamp(),
      priority = coalesce(reschedule_jobs.priority::smallint, s.priority),
      max_attempts = coalesce(reschedule_jobs.max_attempts::smallint, s.max_attempts), retry_at = null
    where s.id = any(job_ids) or s.parked_job_id = any(job_ids) returning s.*
  ),
  arrived as (
    insert into arrivals overriding user value
    select a.* from moved m
    cross join lateral _policy_and_key_of(m.partition_id) k
    cross join lateral _work_arrival(
      k.policy, m.partition_id, k.key, null, 0, null, null, null, m.run_at, m.cost, m.due, m.priority, m.run_at, m.id,
      p_jobs => 0) a
  ),
  -- JavaScript could not work their partitions out, and would try again later
  keyless as (
    update keyless_jobs k set retry_at = '-infinity'
    where k.staged_id = any(array(
      select x.staged_id from keyless_jobs x
      where x.staged_id = any(array(select m.id from moved m where m.partition_id is null)) for update skip locked))
    returning k.policy
  ),
  notified as materialized (
    select _notify(k.policy) from (select distinct k.policy from keyless k) k
  )
  select array_agg(m.id) filter (where (select count(*) from notified) >= 0) into v_moved_ids from moved m;
  -- the next job of its key may have got the row of a parked one: that job is rescheduled like any other
  v_parked_ids := array(
    select j.id from staged_jobs m
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = m.parked_job_id
    where m.id = any(v_moved_ids) and _is_parked(m.id, m.parked_revision, j.run_at, j.revision, j.last_error, j.flags));
  return query
  select j.* from staged_jobs m
  cross join lateral _staged_as_job(m) j
  where m.id = any(v_moved_ids) and m.parked_job_id is null;
  -- one by one: together their payloads may not fit into memory
  foreach v_id in array array(
    select unnest(_graphile_ids(job_ids)) except select unnest(v_parked_ids) order by 1)
  loop
    select x.* into v_job from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      array[v_id], run_at => reschedule_jobs.run_at, priority => reschedule_jobs.priority,
      attempts => reschedule_jobs.attempts, max_attempts => reschedule_jobs.max_attempts) j
    cross join lateral _as_job(j) x;
    if found then
      perform _stage_again(v_job);
      return next v_job;
    end if;
  end loop;
  -- a parked job stays where it is until its staged row is admitted
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
    v_parked_ids, attempts => reschedule_jobs.attempts, max_attempts => reschedule_jobs.max_attempts) j
  join staged_jobs m on m.parked_job_id = j.id and m.id = any(v_moved_ids)
  cross join lateral _as_job(j, m.run_at, m.priority) x;
  v_adopted_ids := _adopted_ids(
    array(select unnest(job_ids) except select unnest(v_moved_ids)));
  if v_adopted_ids <> '{}' then
    return query select j.* from :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
      v_adopted_ids, reschedule_jobs.run_at, reschedule_jobs.priority, reschedule_jobs.attempts,
      reschedule_jobs.max_attempts) j;
  end if;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.reschedule_jobs from public;
