-- Moves chosen jobs out of staging and into Graphile Worker, in one statement: new ones by add_jobs, parked ones by
-- reschedule_jobs. add_jobs may return fewer rows than it got (a worker took the job of that key meanwhile): a row
-- without a job goes back to staging. A parked row has nothing left to do where its job is gone, or where a newer one of
-- its job key is staged or took its place. Rows another session holds are skipped, never waited for.
--
-- The newest job of a key counts, whichever way it came: a staged job leaves without a trace where Graphile Worker has a
-- job of its key that was added later. One that is added while this runs would be overwritten: then it raises
-- lock_not_available, and the job is tried again.
--
-- Staged rows are found by ctid: by id, on a table that looks empty to vacuum, the planner walks another index. That
-- a ctid still holds the same job is asked of a hashed sub-select ("in (...) is true" is one, and is no join): compared
-- with an array, 5,000 jobs cost 130 ms, now 5.
create or replace function :DISPATCH_POLICY_SCHEMA._hand_over(
  p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[], p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_admission[] language plpgsql volatile as $$
declare
  -- a worker under useNodeTime whose clock is behind would not see a job before its clock says now
  v_behind interval := (
    select greatest(max(w.clock_behind), '0') from :DISPATCH_POLICY_SCHEMA._private_workers w
    where w.stale_at > clock_timestamp());
  v_from timestamptz := clock_timestamp() - v_behind - cardinality(p_candidates) * interval '1 microsecond';
  v_admission text := format('@%s#', :DISPATCH_POLICY_SCHEMA._admission_now());
  v_admissions :DISPATCH_POLICY_SCHEMA._private_admission[];
  v_is_raced boolean;
begin
  with moved as materialized (
    delete from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.ctid = any(array(
      select x.ctid from :DISPATCH_POLICY_SCHEMA._private_staged_jobs x
      where x.ctid = any(array(select c.ct from unnest(p_candidates) c where c.chosen))
        and (x.id in (select c.staged_id from unnest(p_candidates) c where c.chosen)) is true
      for update skip locked
    ))
    returning s.*
  ),
  -- what Graphile Worker has under the keys of these jobs, and which revision its row gets with theirs
  known as materialized (
    select m.id, j.id as job_id, case when j.is_kept then j.revision + 1 else 0 end as revision,
      j.is_native and (j.id, j.revision) is distinct from (m.known_job_id, m.known_revision) as is_newer
    from moved m
    cross join lateral :DISPATCH_POLICY_SCHEMA._job_of_key(m.job_key) j
    where m.job_key is not null and m.parked_job_id is null
  ),
  -- Without a run_at of the caller's, Graphile Worker gets the time of admission: it runs by priority and run_at, and by
  -- the time of staging each newly admitted job of an old backlog would go before what waits there already. A
  -- microsecond apart, so that jobs admitted together keep their order.
  timed as materialized (
    select m.*, case when m.run_at_given then m.run_at
      else v_from + row_number() over (order by m.priority, m.run_at, m.id) * interval '1 microsecond' end as ready_at
    from moved m where m.parked_job_id is null and m.id not in (select k.id from known k where k.is_newer)
  ),
  specs as materialized (
    select m.preserve_run_at, array_agg(row(
        m.task_identifier, m.payload, m.queue_name, m.ready_at, m.max_attempts, m.job_key, m.priority,
        -- a flag of the caller's that looks like ours would pass the job off as another
        case when m.flags is not null then array(select f from unnest(m.flags) f where f not like 'dispatch\_policy:%') end
          -- with the beginning of the partition's id: a worker sees whether it works out the same partition
          || ('dispatch_policy:' || m.id || v_admission || left(m.partition_id::text, 8))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by m.job_key nulls first, m.id) as jobs
    from timed m group by m.preserve_run_at
  ),
  added as materialized (
    select j.id as job_id, j.key is not null as keyed, :DISPATCH_POLICY_SCHEMA._staged_id_text(j.flags)::bigint as staged_id,
      s.preserve_run_at and j.run_at = 'infinity' as kept_parked, j.revision
    from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.jobs, s.preserve_run_at) j
  ),
  -- the time that is to be kept may be one of a parked job: nothing would ever run it
  unparked as materialized (
    select count(*) as jobs
    from (select array_agg(a.job_id) as ids from added a where a.kept_parked having count(*) > 0) k
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(k.ids, run_at => v_from) j
  ),
  parked as materialized (
    select m.id as staged_id, m.parked_job_id as job_id, m.priority, j.revision
    from moved m
    cross join lateral (   -- one look at the index for each: a join began with all of Graphile Worker's jobs
      select j.key, j.run_at, j.revision, j.last_error from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = m.parked_job_id limit 1) j
    where m.parked_job_id is not null
      and :DISPATCH_POLICY_SCHEMA._is_parked(m.parked_revision, j.run_at, j.revision, j.last_error)
      and (select true from :DISPATCH_POLICY_SCHEMA._private_staged_jobs n where n.job_key = j.key limit 1) is null
  ),
  resumed as materialized (
    select k.job_id, k.staged_id, j.revision, j.revision <> k.revision as is_raced
    from (select p.priority, array_agg(p.job_id order by p.job_id) as ids from parked p group by p.priority) p
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      -- workers go by the clock: an admission at a test's later `now` must not wait for it
      p.ids, run_at => least(p_now, clock_timestamp()) - v_behind, priority => p.priority) j
    join parked k on k.job_id = j.id
  ),
  announced as materialized (
    -- reschedule_jobs tells no worker
    select pg_notify('jobs:insert', json_build_object('r', random(), 'count', count(*))::text)
    from resumed having count(*) > 0
  ),
  replaced as (
    insert into :DISPATCH_POLICY_SCHEMA._private_replaced_jobs (job_id)
    select m.parked_job_id from moved m
    where m.parked_job_id is not null and m.id not in (select r.staged_id from resumed r)
    on conflict (job_id) do nothing
  ),
  back as (
    insert into :DISPATCH_POLICY_SCHEMA._private_staged_jobs overriding system value
    select m.* from moved m
    where m.parked_job_id is null and m.job_key is not null
      and not exists (select 1 from added a where a.staged_id = m.id)
      and m.id not in (select k.id from known k where k.is_newer)
  ),
  admission as (
    select a.job_id, a.staged_id, true, a.keyed, a.revision from added a
    union all
    select r.job_id, r.staged_id, true, true, r.revision from resumed r
    -- what is gone: no job, and no longer a candidate
    union all
    select null, m.id, false, false, null from moved m
    where m.parked_job_id is not null and not exists (select 1 from resumed r where r.staged_id = m.id)
    union all
    select null, k.id, false, false, null from known k where k.is_newer
  )
  select array(select a:::DISPATCH_POLICY_SCHEMA._private_admission from admission a),
    exists (
      select from added a left join known k on k.id = a.staged_id
      where a.keyed and (a.revision > coalesce(k.revision, 0) or (a.revision > 0 and a.job_id <> k.job_id)))
      or exists (select from resumed r where r.is_raced),
    -- PostgreSQL skips a SELECT that nobody reads: these have effects
    (select count(*) from announced), (select count(*) from unparked)
  into v_admissions, v_is_raced;
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile' using errcode = 'lock_not_available';
  end if;
  return v_admissions;
end
$$;
