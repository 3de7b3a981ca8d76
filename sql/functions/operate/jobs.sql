-- Graphile Worker's own admin functions, for jobs that are staged as well as for its own.

-- Removes the job of this key wherever it is: staged, or Graphile Worker's by its own remove_job.
create or replace function :DISPATCH_POLICY_SCHEMA.remove_job(job_key text)
returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql strict
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_removed :DISPATCH_POLICY_SCHEMA.added_job;
  v_job record;
begin
  perform :DISPATCH_POLICY_SCHEMA._before_change(array(
    select s.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.job_key = remove_job.job_key));
  delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.job_key = remove_job.job_key
  returning s.id, true, s.task_identifier, s.queue_name, s.run_at, s.max_attempts::int, s.job_key, s.priority::int,
    s.flags, s.created_at, null, null, null, null into v_removed;
  if v_removed.id is not null then
    perform :DISPATCH_POLICY_SCHEMA._count_removed(array[v_removed.task_identifier]);
  end if;
  select j.id, j.run_at, j.max_attempts, j.key, j.priority, j.created_at into v_job
  from :GRAPHILE_WORKER_SCHEMA.remove_job(remove_job.job_key) j;
  if v_job.id is not null then
    perform :DISPATCH_POLICY_SCHEMA._before_change(array[v_job.id]);   -- parked, perhaps
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
create or replace function :DISPATCH_POLICY_SCHEMA.complete_jobs(job_ids bigint[])
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_ids bigint[];
  v_keys text[] := array(
    select s.job_key from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null and s.job_key is not null);
begin
  perform :DISPATCH_POLICY_SCHEMA._before_change(job_ids);
  return query
  with completed as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.*
  ),
  counted as materialized (
    select :DISPATCH_POLICY_SCHEMA._count_removed(array(select c.task_identifier from completed c))
  )
  select j.* from completed c cross join lateral :DISPATCH_POLICY_SCHEMA._staged_as_job(c) j
  where (select count(*) from counted) >= 0;
  v_ids := :DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids);   -- asked now: one may have waited for its admission
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.complete_jobs(v_ids) j
  cross join lateral :DISPATCH_POLICY_SCHEMA._as_job(to_json(j)) x;
  perform :DISPATCH_POLICY_SCHEMA._job_gone(v_ids);
  perform :DISPATCH_POLICY_SCHEMA._give_up_replaced(v_keys) where v_keys <> '{}';
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.complete_jobs from public;

-- Fails jobs for good. A staged job is handed to Graphile Worker as failed, so that it is kept and seen there.
create or replace function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null)
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_handed_ids bigint[];
  v_ids bigint[];
begin
  perform :DISPATCH_POLICY_SCHEMA._before_change(job_ids);
  with moved as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.id = any(job_ids) and s.parked_job_id is null returning s.*
  ),
  counted as materialized (
    select :DISPATCH_POLICY_SCHEMA._count_removed(array(select m.task_identifier from moved m))
  )
  select array_agg(a.id) filter (where (select count(*) from counted) >= 0) into v_handed_ids
  from moved m cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
    m.task_identifier, m.payload, m.queue_name, 'infinity', m.max_attempts::int, m.job_key, m.priority::int, m.flags) a;
  v_ids := :DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids) || v_handed_ids;
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(v_ids, error_message) j
  cross join lateral :DISPATCH_POLICY_SCHEMA._as_job(to_json(j)) x;
  perform :DISPATCH_POLICY_SCHEMA._job_gone(v_ids);
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs from public;

-- Changes when and how jobs run. A staged job keeps waiting for its gates; `attempts` means nothing to one that never ran.
-- A job that was admitted before passes its gates again.
create or replace function :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
  job_ids bigint[], run_at timestamptz default null, priority int default null, attempts int default null,
  max_attempts int default null
) returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_moved :DISPATCH_POLICY_SCHEMA._private_staged_jobs[];
  v_parked_ids bigint[];
  v_rescheduled :DISPATCH_POLICY_SCHEMA.db_job[];
begin
  perform :DISPATCH_POLICY_SCHEMA._before_change(job_ids);
  with moved as (
    update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set
      run_at = case when reschedule_jobs.run_at is null then s.run_at
        else :DISPATCH_POLICY_SCHEMA._run_at(reschedule_jobs.run_at) end,
      run_at_given = s.run_at_given or reschedule_jobs.run_at is not null,
      due = coalesce(reschedule_jobs.run_at, s.run_at) <= clock_timestamp(),
      priority = coalesce(reschedule_jobs.priority::smallint, s.priority),
      max_attempts = coalesce(reschedule_jobs.max_attempts::smallint, s.max_attempts), retry_at = null
    where s.id = any(job_ids) or s.parked_job_id = any(job_ids) returning s.*
  ),
  note as (
    insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (
      policy, partition_id, key, due_at, head_priority, head_run_at, head_id, min_cost)
    select k.policy, m.partition_id, k.key, date_trunc('milliseconds', m.run_at),
      case when m.due then m.priority else 32767 end, case when m.due then m.run_at else 'infinity' end,
      case when m.due then m.id else 9223372036854775807 end, m.cost
    from moved m cross join lateral :DISPATCH_POLICY_SCHEMA._policy_and_key_of(m.partition_id) k
  )
  select array_agg(m), array_agg(m.parked_job_id) filter (where m.parked_job_id is not null)
  into v_moved, v_parked_ids from moved m;
  return query
  select j.* from unnest(v_moved) m cross join lateral :DISPATCH_POLICY_SCHEMA._staged_as_job(m) j
  where m.parked_job_id is null;
  v_rescheduled := array(
    select x from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      array(select unnest(:DISPATCH_POLICY_SCHEMA._graphile_ids(job_ids)) except select unnest(v_parked_ids)),
      run_at => reschedule_jobs.run_at, priority => reschedule_jobs.priority, attempts => reschedule_jobs.attempts,
      max_attempts => reschedule_jobs.max_attempts) j
    cross join lateral :DISPATCH_POLICY_SCHEMA._as_job(to_json(j)) x);
  perform :DISPATCH_POLICY_SCHEMA._stage_again(v_rescheduled);
  return query select j.* from unnest(v_rescheduled) j;
  -- a parked job stays where it is until its staged row is admitted
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
    v_parked_ids, attempts => reschedule_jobs.attempts, max_attempts => reschedule_jobs.max_attempts) j
  join unnest(v_moved) m on m.parked_job_id = j.id
  cross join lateral :DISPATCH_POLICY_SCHEMA._as_job(to_json(j), m.run_at, m.priority) x;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.reschedule_jobs from public;

-- A row of Graphile Worker's, the columns that it documents; with time and priority of its staged row where it is parked.
create or replace function :DISPATCH_POLICY_SCHEMA._as_job(
  p_job json, p_run_at timestamptz default null, p_priority int default null
) returns :DISPATCH_POLICY_SCHEMA.db_job language plpgsql stable as $$
declare
  v_job :DISPATCH_POLICY_SCHEMA.db_job := json_populate_record(null:::DISPATCH_POLICY_SCHEMA.db_job, p_job);
begin
  v_job.run_at := coalesce(p_run_at, v_job.run_at);
  v_job.priority := coalesce(p_priority, v_job.priority);
  return v_job;
end
$$;

create or replace function :DISPATCH_POLICY_SCHEMA._staged_as_job(p_job :DISPATCH_POLICY_SCHEMA._private_staged_jobs)
returns :DISPATCH_POLICY_SCHEMA.db_job language sql stable as $$
  select (p_job.id, null, null, p_job.payload, p_job.priority, p_job.run_at, 0, coalesce(p_job.max_attempts, 25),
    p_job.error, p_job.created_at, p_job.created_at, p_job.job_key, 0, null, null,
    (select jsonb_object_agg(f.flag, true) from unnest(p_job.flags) f (flag)), true)
    :::DISPATCH_POLICY_SCHEMA.db_job;
$$;

-- Graphile Worker's ids behind these: its own as they are, staged ones where they were admitted or are parked.
create or replace function :DISPATCH_POLICY_SCHEMA._graphile_ids(p_ids bigint[]) returns bigint[]
language sql stable as $$
  select array(
    select u.id from unnest(p_ids) u (id) where u.id < 1000000000000000
    union select f.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.staged_id = any(p_ids)
    union select s.parked_job_id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
      where s.id = any(p_ids) and s.parked_job_id is not null
        and :DISPATCH_POLICY_SCHEMA._is_parked(s.parked_revision, j.run_at, j.revision, j.last_error));
$$;

-- Jobs that left Graphile Worker without running: parked ones have nothing left to wait for, and the next sweep gives the
-- others' slots back.
create or replace function :DISPATCH_POLICY_SCHEMA._job_gone(p_job_ids bigint[]) returns void language sql volatile as $$
  with waiting as (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.parked_job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id and j.attempts < j.max_attempts)
    returning s.task_identifier, s.parked_job_id, s.priority
  ),
  -- one that failed for good, and that somebody may run again, does not stay at the last priority
  restored as materialized (
    select :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[w.parked_job_id], priority => w.priority) from waiting w
  )
  select :DISPATCH_POLICY_SCHEMA._count_removed(array(select w.task_identifier from waiting w))
  where (select count(*) from restored) >= 0;
  select :DISPATCH_POLICY_SCHEMA._leave_to_sweep(array(
    select u.id from unnest(p_job_ids) u (id)
    where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null)));
$$;
