-- Jobs that wait in Graphile Worker move to staging.

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
-- It reads the ids in their order and stops at the limit: without statistics the planner would sort all jobs each time. It
-- locks nothing, so _adopt compares the revisions again under its locks.
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
        select from superseded_jobs o
        where o.job_id = j.id and o.revision = j.revision)
    order by j.id limit p_limit);
$$;

-- Moves jobs that never ran out of Graphile Worker and into staging, in one statement. Graphile Worker's complete_jobs
-- deletes and returns them, so each job is in one place or in the other. A job keeps its id: users may have stored it, and
-- Graphile Worker never gives an id twice.
--
-- If a job of the same key is staged, it was added later, because _adopt has dropped older ones. Then it stays, and
-- this one leaves without a trace, as in Graphile Worker. With preserve_run_at it gets this one's time.
--
--   moved     how many jobs Graphile Worker gave
--   unkeyed   those whose payload has no key; the caller undoes this call then
--
-- Raises lock_not_available if one of the jobs was fetched, replaced or staged anew since it was looked at.
create or replace function _move_into_staging(
  p_policy policies, p_task text,
  p_jobs waiting_job[], out moved int, out unkeyed bigint[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set jit = off   -- as _stage_batch
as $$
declare
  v_now timestamptz := clock_timestamp();
  v_name text := (p_policy).name;
  v_definition jsonb := (p_policy).definition;
  v_resolves boolean := ((p_policy).definition ->> 'resolvesInSql')::boolean;
  v_cost float8 := coalesce(
    case when ((p_policy).definition ->> 'resolvesInSql')::boolean then ((p_policy).definition ->> 'cost')::float8 end, 1);
  v_limits jsonb := _constant_limits((p_policy).definition);
  v_droppable boolean := coalesce(
    _is_droppable((p_policy).when_full, (p_policy).max_pending_in_all), false);
  v_expires_after interval := make_interval(secs => ((p_policy).definition ->> 'expiresAfterSeconds')::float8);
  v_changed boolean;
  v_staged int;
  v_kept_keys text[];   -- of the staged jobs that stay, and the times of those that leave
  v_run_ats timestamptz[];
  v_given boolean[];
  v_kept_ids bigint[];
  v_partition_ids uuid[];
begin
  with job as materialized (
    select j.id, j.payload, j.priority, j.max_attempts, j.created_at, j.key as job_key, w.queue_name,
      _run_at(j.run_at) as run_at,
      -- Graphile Worker writes the time of the call if the caller gave none. By an earlier time, of its first staging or its
      -- admission, a job that was unstaged or in flight would go before the jobs of other tasks.
      j.run_at > j.created_at and j.run_at <> j.updated_at
        and not (j.run_at <= v_now and _is_ours(j.flags, j.created_at, j.key)) as run_at_given,
      -- it may be a copy of an admitted job's, with a flag that no staged job may have
      case when j.flags is not null then array(
        select f from jsonb_object_keys(j.flags) f where not _is_own_flag(f)) end as flags,
      case when j.flags is not null then _traceparent_of(j.flags) end as traceparent,
      (j.revision, j.attempts) <> (w.revision, w.attempts) as changed,
      case when v_resolves then _key_or_null(v_definition, j.payload, p_task) end as key
    from :GRAPHILE_WORKER_SCHEMA.complete_jobs(array(select u.id from unnest(p_jobs) u)) j
    join unnest(p_jobs) w on w.id = j.id
  ),
  partition as materialized (
    select k.key, _partition_id(v_name, k.key) as id
    from (select distinct j.key from job j where j.key is not null) k
  ),
  put as materialized (
    select j.*, k.id as partition_id, j.run_at <= v_now as due from job j left join partition k on k.key = j.key
  ),
  staged as (
    insert into staged_jobs (
      id, partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, job_key, priority,
      flags, cost, due, created_at, droppable, traceparent, expires_at, sort_at)
    overriding system value
    select p.id, p.partition_id, p_task, p.payload, p.queue_name, p.run_at, p.run_at_given, p.max_attempts, p.job_key,
      p.priority, p.flags, v_cost, p.due, p.created_at, v_droppable, p.traceparent,
      greatest(p.run_at, v_now) + v_expires_after,
      case when (p_policy).job_order = 'deadline' then greatest(p.run_at, v_now) + v_expires_after end
    from put p order by p.job_key
    on conflict (job_key) where job_key is not null do nothing
    returning id, partition_id, priority, run_at, due
  ),
  arrived as (
    insert into arrivals overriding user value
    select a.*
    from (
      select s.partition_id, min(s.run_at) as due_at, bool_or(not s.due) as later,
        count(*)::int as jobs
      from staged s where s.partition_id is not null group by s.partition_id
    ) w
    join partition k on k.id = w.partition_id
    left join (
      select distinct on (s.partition_id) s.partition_id, s.priority, s.run_at, s.id from staged s where s.due
      order by s.partition_id, s.priority, s.run_at, s.id
    ) f on f.partition_id = w.partition_id
    cross join lateral _work_arrival(
      v_name, k.id, k.key, coalesce(v_definition ->> 'shard', 'default'), (p_policy).generation, '{}',
      (v_definition ->> 'weight')::float8, v_limits, w.due_at, v_cost, f.id is not null, f.priority,
      f.run_at, f.id, f.id is not null and w.later, w.jobs) a
  ),
  keyless as (
    insert into keyless_jobs (staged_id, policy)
    select s.id, v_name from staged s where s.partition_id is null
  )
  select count(*), coalesce(bool_or(p.changed), false), (select count(*) from staged),
    coalesce(array_agg(p.id) filter (where v_resolves and p.key is null), '{}'),
    array_agg(p.job_key) filter (where p.leaves), array_agg(p.run_at) filter (where p.leaves),
    array_agg(p.run_at_given) filter (where p.leaves)
  into moved, v_changed, v_staged, unkeyed, v_kept_keys, v_run_ats, v_given
  from (select p.*, p.job_key is not null and p.id not in (select s.id from staged s) as leaves from put p) p;
  -- a staged job that did not know this one was committed meanwhile, and is older
  if v_changed or exists (
    select from staged_jobs s join unnest(p_jobs) w on w.job_key = s.job_key
    where s.job_key = any(v_kept_keys) and not w.was_admitted
      and (s.known_job_id, s.known_revision) is distinct from (w.id, w.revision)
  ) then
    raise exception 'dispatch_policy: a job changed meanwhile' using errcode = 'lock_not_available';
  end if;
  if v_kept_keys is not null then
    -- A job with preserve_run_at keeps the time of the one that it replaces: once that one is gone, nobody knows its time, and it
    -- would run at once. One that is quarantined stays so. Routing looks at its partition again, whose next job may be another.
    with kept as (
      update staged_jobs s set
        run_at = u.run_at, run_at_given = u.given, due = u.run_at <= clock_timestamp() and s.retry_at is null
      from unnest(v_kept_keys, v_run_ats, v_given) u (job_key, run_at, given)
      where s.job_key = u.job_key and s.preserve_run_at
      returning s.id, s.partition_id
    )
    select array_agg(t.id), array_agg(t.partition_id) into v_kept_ids, v_partition_ids from kept t;
    perform _arrive_again(v_kept_ids);
    perform _head_changed(v_partition_ids);
  end if;
  perform _count_pending(v_name, v_staged);
end
$$;
