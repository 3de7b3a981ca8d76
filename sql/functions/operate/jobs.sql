-- Graphile Worker's own admin functions, for jobs that are staged as well as for its own.

-- Removes the job of this key wherever it is: staged, or Graphile Worker's by its own remove_job.
create or replace function :DISPATCH_POLICY_SCHEMA.remove_job(job_key text)
returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql strict
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_removed :DISPATCH_POLICY_SCHEMA.added_job;
  v_job record;
begin
  delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.job_key = remove_job.job_key
  returning s.id, true, s.task_identifier, s.queue_name, s.run_at, s.max_attempts::int, s.job_key, s.priority::int,
    s.flags, s.created_at, null, null, null, null into v_removed;
  if v_removed.id is not null then
    perform :DISPATCH_POLICY_SCHEMA._count_removed(array[v_removed.task_identifier]);
  end if;
  select j.id, j.run_at, j.max_attempts, j.key, j.priority, j.created_at into v_job
  from :GRAPHILE_WORKER_SCHEMA.remove_job(remove_job.job_key) j;
  if v_job.id is not null then
    perform :DISPATCH_POLICY_SCHEMA._job_gone(array[v_job.id]);
    if v_removed.id is null then
      v_removed := row(v_job.id, false, null, null, v_job.run_at, v_job.max_attempts::int, v_job.key,
        v_job.priority::int, null, v_job.created_at, null, null, null, null);
    end if;
  end if;
  return v_removed;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove_job from public;

-- Marks jobs as done without running them.
create or replace function :DISPATCH_POLICY_SCHEMA.complete_jobs(job_ids bigint[]) returns setof bigint
language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with completed as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.id, s.task_identifier
  ),
  counted as materialized (
    select :DISPATCH_POLICY_SCHEMA._count_removed(array(select c.task_identifier from completed c))
  )
  select c.id from completed c where (select count(*) from counted) >= 0;
  return query select j.id from :GRAPHILE_WORKER_SCHEMA.complete_jobs(
    :DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids)) j;
  perform :DISPATCH_POLICY_SCHEMA._job_gone(:DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids));
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.complete_jobs from public;

-- Fails jobs for good. A staged job is handed to Graphile Worker as failed, so that it is kept and seen there.
create or replace function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null)
returns setof bigint language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_ids bigint[] := :DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids);
begin
  with moved as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.*
  ),
  counted as materialized (
    select :DISPATCH_POLICY_SCHEMA._count_removed(array(select m.task_identifier from moved m))
  )
  select v_ids || coalesce(array_agg(a.id) filter (where (select count(*) from counted) >= 0), '{}') into v_ids
  from moved m cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
    m.task_identifier, m.payload, m.queue_name, 'infinity', m.max_attempts::int, m.job_key, m.priority::int, m.flags) a;
  return query select j.id from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(v_ids, error_message) j;
  perform :DISPATCH_POLICY_SCHEMA._job_gone(v_ids);
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs from public;

-- Changes when and how jobs run; a staged job keeps waiting for its gates.
create or replace function :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
  job_ids bigint[], run_at timestamptz default null, priority int default null, attempts int default null,
  max_attempts int default null
) returns setof bigint language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  with moved as (
    update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set
      run_at = coalesce(reschedule_jobs.run_at, s.run_at),
      run_at_given = s.run_at_given or reschedule_jobs.run_at is not null,
      due = coalesce(reschedule_jobs.run_at, s.run_at) <= clock_timestamp(),
      priority = coalesce(reschedule_jobs.priority::smallint, s.priority),
      max_attempts = coalesce(reschedule_jobs.max_attempts::smallint, s.max_attempts), retry_at = null
    where s.id = any(job_ids) returning s.*
  ),
  note as (
    insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (
      policy, partition_id, key, due_at, head_priority, head_run_at, head_id, min_cost)
    select p.name, m.partition_id, q.key, date_trunc('milliseconds', m.run_at),
      case when m.due then m.priority else 32767 end, case when m.due then m.run_at else 'infinity' end,
      case when m.due then m.id else 9223372036854775807 end, m.cost
    from moved m
    join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = m.partition_id
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
  )
  select m.id from moved m;
  return query select j.id from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
    array(select u.id from unnest(job_ids) u (id) where u.id < 1000000000000000),
    run_at => reschedule_jobs.run_at, priority => reschedule_jobs.priority, attempts => reschedule_jobs.attempts,
    max_attempts => reschedule_jobs.max_attempts) j;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.reschedule_jobs from public;

-- Graphile Worker's ids behind these: its own as they are, staged ones where they were admitted or are parked.
create or replace function :DISPATCH_POLICY_SCHEMA._graphile_ids(p_ids bigint[]) returns bigint[]
language sql stable as $$
  select array(
    select u.id from unnest(p_ids) u (id) where u.id < 1000000000000000
    union select f.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.staged_id = any(p_ids)
    union select s.parked_job_id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
      where s.id = any(p_ids) and s.parked_job_id is not null);
$$;

-- Jobs that left Graphile Worker without running: parked ones have nothing left to wait for, and the next sweep gives the
-- others' slots back. It is told by a mark instead of done here, since an application's transaction must not hold limiters
-- until it commits.
create or replace function :DISPATCH_POLICY_SCHEMA._job_gone(p_job_ids bigint[]) returns void language sql volatile as $$
  with waiting as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.parked_job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id and j.attempts < j.max_attempts)
    returning s.task_identifier
  )
  select :DISPATCH_POLICY_SCHEMA._count_removed(array(select w.task_identifier from waiting w));
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = '-infinity'
  where f.job_id = any(array(   -- in the order in which releases lock them
    select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
    where x.job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = x.job_id and j.locked_at is not null)
    order by x.job_id for update));
$$;
