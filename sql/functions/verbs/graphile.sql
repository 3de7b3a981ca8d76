-- Verbs: what Graphile Worker's own functions do to jobs, for those that policies govern.

-- Marks jobs as done without running them.
create or replace function :DISPATCH_POLICY_SCHEMA.complete_jobs(job_ids bigint[])
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_ids bigint[];
  v_keys text[] := array(
    select s.job_key from staged_jobs s where s.id = any(job_ids) and s.parked_job_id is null and s.job_key is not null);
begin
  perform _before_change(job_ids);
  v_ids := array(select s.id from staged_jobs s where s.id = any(job_ids) and s.parked_job_id is null);
  return query select j.* from staged_jobs s cross join lateral _staged_as_job(s) j where s.id = any(v_ids);
  perform _drop_staged(v_ids, 'removed');
  v_ids := _graphile_ids(job_ids);   -- looked up now, because this may have waited for a job's admission
  return query select x.* from :GRAPHILE_WORKER_SCHEMA.complete_jobs(v_ids) j cross join lateral _as_job(j) x;
  perform _job_gone(v_ids);
  perform _give_up_replaced(v_keys);
  v_ids := _adopted_ids(job_ids);
  return query select j.* from :DISPATCH_POLICY_SCHEMA.complete_jobs(v_ids) j where v_ids <> '{}';
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.complete_jobs from public;

-- A staged job with the columns of a row of Graphile Worker's, as Graphile Worker's own verbs return jobs.
create or replace function _staged_as_job(p_job staged_jobs) returns :DISPATCH_POLICY_SCHEMA.db_job language sql stable as $$
  select (p_job.id, null, null, p_job.payload, p_job.priority, p_job.run_at, 0, _max_attempts(p_job.max_attempts),
    p_job.error, p_job.created_at, p_job.created_at, p_job.job_key, 0, null, null,
    (select jsonb_object_agg(f.flag, true) from unnest(p_job.flags) f (flag)), true):::DISPATCH_POLICY_SCHEMA.db_job;
$$;

-- Graphile Worker's ids of these jobs. A staged id gives one if the job was admitted or is parked, and still has its row.
create or replace function _graphile_ids(p_ids bigint[]) returns bigint[] language sql stable as $$
  select array(
    select u.id from unnest(p_ids) u (id) where u.id < 1000000000000000
    union select f.job_id from in_flight_jobs f
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
      where f.staged_id = any(p_ids) and _is_row_of(f.revision, f.staged_id, j.revision, j.flags)
    union select s.parked_job_id from staged_jobs s
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
      where s.id = any(p_ids) and s.parked_job_id is not null
        and _is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags));
$$;

-- A row of Graphile Worker's as its documented columns. A parked job has the time and priority of its staged row. Not by way
-- of JSON, because as a part of other JSON PostgreSQL refuses some payloads that it stores.
create or replace function _as_job(p_job record, p_run_at timestamptz default null, p_priority int default null)
returns :DISPATCH_POLICY_SCHEMA.db_job language plpgsql stable as $$
begin
  return row(p_job.id, p_job.job_queue_id, p_job.task_id, p_job.payload, coalesce(p_priority, p_job.priority),
    coalesce(p_run_at, p_job.run_at), p_job.attempts, p_job.max_attempts, p_job.last_error, p_job.created_at,
    p_job.updated_at, p_job.key, p_job.revision, p_job.locked_at, p_job.locked_by, p_job.flags,
    p_job.is_available):::DISPATCH_POLICY_SCHEMA.db_job;
end
$$;

-- Fails jobs for good. A staged job is handed to Graphile Worker as failed, so that it is kept and shown there.
--
-- The danger: somebody may have the failed job run again. A newer job of its key may have been staged while this ran, and
-- does not know of its row. Without a flag the row would count as added later, and replace the newer job. The cure: it has
-- the flag of an admitted job.
create or replace function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(job_ids bigint[], error_message text default null)
returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_handed_ids bigint[]; v_is_raced boolean; v_ids bigint[];
begin
  perform _before_change(job_ids);
  v_ids := array(select s.id from staged_jobs s where s.id = any(job_ids) and s.parked_job_id is null);
  select array_agg(a.id), bool_or(a.key is not null and _is_raced(k.id, k.next_revision, a.id, a.revision))
  into v_handed_ids, v_is_raced
  from staged_jobs m
  left join lateral _job_of_key(m.job_key, m.known_job_id, m.known_revision) k on true
  cross join lateral :GRAPHILE_WORKER_SCHEMA.add_job(
    m.task_identifier, m.payload, m.queue_name, 'infinity', m.max_attempts::int,
    -- Graphile Worker may have a newer job under its key, which would be failed in its place
    case when k.is_newer is not true then m.job_key end, m.priority::int,
    array(select f from unnest(m.flags) f where not _is_own_flag(f))
      || _ticket(m.id, _admission_now(), m.partition_id, m.job_key,
        _trace_text(m.traceparent, m.created_at, m.run_at, m.run_at_given))) a
  where m.id = any(v_ids);
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile: call permanently_fail_jobs again'
      using errcode = 'lock_not_available';
  end if;
  perform _drop_staged(v_ids, 'failed', _first_line(error_message));
  v_ids := _graphile_ids(job_ids) || v_handed_ids;
  return query
  select x.* from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(v_ids, error_message) j cross join lateral _as_job(j) x;
  perform _job_gone(v_ids);
  v_ids := _adopted_ids(job_ids);
  return query select j.* from :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs(v_ids, error_message) j where v_ids <> '{}';
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.permanently_fail_jobs from public;

-- Changes when and how jobs run. A staged job keeps waiting for its gates; `attempts` has no effect on a job that never ran.
-- A job that was admitted before passes its gates again.
create or replace function :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
  job_ids bigint[], run_at timestamptz default null, priority int default null, attempts int default null,
  max_attempts int default null
) returns setof :DISPATCH_POLICY_SCHEMA.db_job language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_moved_ids bigint[]; v_parked_ids bigint[]; v_id bigint; v_job :DISPATCH_POLICY_SCHEMA.db_job;
begin
  perform _before_change(job_ids);
  with moved as materialized (
    select * from _reschedule_staged(
      job_ids, reschedule_jobs.run_at, reschedule_jobs.priority::smallint, reschedule_jobs.max_attempts::smallint)
  ),
  -- JavaScript could not work their partitions out, and would try again later
  keyless as (
    update keyless_jobs k set retry_at = '-infinity' where k.staged_id = any(array(
      select x.staged_id from keyless_jobs x
      where x.staged_id = any(array(select m.id from moved m where m.partition_id is null)) for update skip locked))
    returning k.policy
  ),
  notified as materialized (
    select _notify(k.policy) from (select distinct k.policy from keyless k) k
  )
  select array_agg(m.id) filter (where (select count(*) from notified) >= 0) into v_moved_ids from moved m;
  perform _arrive_again(v_moved_ids);
  -- the next job of its key may have got the row of a parked one: that job is rescheduled like any other
  v_parked_ids := array(
    select j.id from staged_jobs m
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = m.parked_job_id
    where m.id = any(v_moved_ids) and _is_parked(m.id, m.parked_revision, j.run_at, j.revision, j.last_error, j.flags));
  return query
  select j.* from staged_jobs m cross join lateral _staged_as_job(m) j
  where m.id = any(v_moved_ids) and m.parked_job_id is null;
  -- one by one: together their payloads may not fit into memory
  foreach v_id in array array(select unnest(_graphile_ids(job_ids)) except select unnest(v_parked_ids) order by 1) loop
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
  v_moved_ids := _adopted_ids(array(select unnest(job_ids) except select unnest(v_moved_ids)));
  return query select j.* from :DISPATCH_POLICY_SCHEMA.reschedule_jobs(
    v_moved_ids, reschedule_jobs.run_at, reschedule_jobs.priority, reschedule_jobs.attempts, reschedule_jobs.max_attempts) j
  where v_moved_ids <> '{}';
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.reschedule_jobs from public;

-- Removes the job of this key wherever it is: staged, or Graphile Worker's by its own remove_job. A key that is remembered
-- (`uniqueFor`) is forgotten, so that the next job of it is added.
create or replace function :DISPATCH_POLICY_SCHEMA.remove_job(job_key text)
returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql strict
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_removed :DISPATCH_POLICY_SCHEMA.added_job;
  v_staged staged_jobs; v_job record;
begin
  delete from unique_keys k where k.job_key = remove_job.job_key and k.policy_id in (
    select p.id from policies p where p.unique_for is not null);
  perform _before_change(array(
    select s.id from staged_jobs s where s.job_key = remove_job.job_key
    union all select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = remove_job.job_key));   -- it may be parked
  select s.* into v_staged from staged_jobs s where s.job_key = remove_job.job_key for update;
  if v_staged.id is not null then
    perform _drop_staged(array[v_staged.id], 'removed');
    v_removed := row(v_staged.id, true, v_staged.task_identifier, v_staged.queue_name, v_staged.run_at,
      v_staged.max_attempts::int, v_staged.job_key, v_staged.priority::int, v_staged.flags, v_staged.created_at, null, null,
      null, null);
  end if;
  select j.id, j.run_at, j.max_attempts, j.key, j.priority, j.created_at into v_job
  from :GRAPHILE_WORKER_SCHEMA.remove_job(remove_job.job_key) j;
  if v_job.id is null and v_removed.id is null   -- it may have been adopted between the two looks
    and exists (select from staged_jobs s where s.job_key = remove_job.job_key) then
    return :DISPATCH_POLICY_SCHEMA.remove_job(remove_job.job_key);
  end if;
  if v_job.id is not null then
    perform _job_gone(array[v_job.id]);
    if v_removed.id is null then
      v_removed := row(v_job.id, false, null, null, v_job.run_at, v_job.max_attempts::int, v_job.key,
        v_job.priority::int, null, v_job.created_at, null, null, null, null);
    end if;
  end if;
  return v_removed;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.remove_job from public;
