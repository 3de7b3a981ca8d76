-- Jobs come into staging.

-- Stages a call of one job without a job key, which is the most frequent one. It writes the same rows as _stage_batch, by
-- small statements. The start of the large statement took two thirds of the call (2.0 ms, now 0.8, as
-- graphile_worker.add_job).
create or replace function _stage_one(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_droppable boolean
) returns setof staging language plpgsql
set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_job record;
  v_partition record;
  v_partition_id uuid;
  v_staged record;
begin
  select * into v_job from _job_records(p_jobs) j;
  select * into v_partition from json_to_record(p_partitions -> v_job.p)
    as k (key text, lane text, shard text, context jsonb, weight float8, limits jsonb);
  if v_partition.key is not null then
    v_partition_id := _partition_id(p_policy, v_partition.key, v_partition.lane);
  end if;
  insert into staged_jobs as s (
    partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, preserve_run_at, priority, flags, cost,
    due, created_at, droppable, traceparent, expires_at, sort_at)
  values (
    v_partition_id, v_job.task, coalesce(v_job.payload, '{}'), v_job."queueName", _run_at(v_job."runAt"),
    v_job."runAt" is not null,
    v_job."maxAttempts"::smallint, false, coalesce(v_job.priority, 0)::smallint, v_job.flags, coalesce(v_job.cost, 1),
    _run_at(v_job."runAt") <= v_now, v_now, p_droppable,
    left(v_job.traceparent, 55), v_job.expires_at, v_job.sort_at)
  returning s.id, s.run_at, s.max_attempts, s.priority, s.cost, s.due into v_staged;
  if v_partition_id is null then
    insert into keyless_jobs (staged_id, policy, partition_key)
    values (v_staged.id, p_policy, v_job.key);
  else
    insert into arrivals overriding user value
    select a.* from _work_arrival(
      p_policy, v_partition_id, v_partition.key, coalesce(v_partition.shard, 'default'), p_version, v_partition.context,
      v_partition.weight, v_partition.limits, v_staged.run_at, v_staged.cost, v_staged.due, v_staged.priority,
      v_staged.run_at, v_staged.id) a;
  end if;
  perform _notify(p_policy);
  return query select v_job.n, true, v_staged.id, v_job.task, v_job."queueName", v_staged.run_at,
    _max_attempts(v_staged.max_attempts), null::text, v_staged.priority::int, v_job.flags, v_now, p_policy,
    v_partition.key, case when v_job.p is not null then coalesce(v_partition.shard, 'default') end, null::json, false;
end
$$;

-- The jobs of a staging call, typed. A job says when it is due, or how many seconds from now. It says when it expires, or
-- how many seconds after it is due. A debounced job has `wait` and "maxWait". If its policy goes by deadlines, `sort_at` is
-- its own one, else when it expires.
create or replace function _job_records(p_jobs json)
returns table (
  n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
  priority int, flags text[], cost float8, key text, traceparent text, expires_at timestamptz, wait float8, "maxWait" float8,
  "expiresAfter" float8, sort_at timestamptz
) language sql stable as $$
  select j.n, j.task, j.p, j.payload, j."queueName", coalesce(j."runAt", now() + make_interval(secs => j.wait)), j."maxAttempts",
    j."jobKey", j.priority, j.flags, j.cost, j.key, j.traceparent, x.expires_at, j.wait, j."maxWait", j."expiresAfter",
    case when j."byDeadline" then coalesce(j.deadline, x.expires_at) end
  from json_to_recordset(p_jobs) j (
    n int, task text, p int, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text,
    priority int, flags text[], cost float8, key text, traceparent text, wait float8, "maxWait" float8,
    "expiresAt" timestamptz, "expiresAfter" float8, "byDeadline" boolean, deadline timestamptz)
  cross join lateral (
    select coalesce(j."expiresAt", greatest(j."runAt", now() + make_interval(secs => coalesce(j.wait, 0)))
      + make_interval(secs => j."expiresAfter")) as expires_at) x;
$$;

-- The arrival of work for a partition: of one staged job, or of the first that is due of several. A job that is not due yet
-- is no head, so its place is that of _no_head. The time is cut to whole milliseconds, because a JavaScript Date has no
-- microseconds: a `now` read right after would be before the job's time.
--
--   p_run_at, p_cost   the first time at which a job is due, and the least cost
--   p_due              whether a job is due now; its place follows: p_priority, p_head_run_at, p_id
--   p_jobs             how many more jobs are staged in the partition
--
-- It is a query over its parameters, so that PostgreSQL inlines it. No argument may be a sub-select: then 10,000 calls take
-- 0.2 s.
create or replace function _work_arrival(
  p_policy text, p_partition_id uuid, p_key text, p_shard text, p_version int, p_context jsonb, p_weight float8,
  p_limits jsonb, p_run_at timestamptz, p_cost float8, p_due boolean, p_priority smallint, p_head_run_at timestamptz,
  p_id bigint, p_head_changed boolean default false, p_jobs int default 1
) returns setof arrivals language sql stable rows 1 as $$
  select null::bigint, p_policy, p_partition_id, p_key, p_shard, coalesce(p_version, 0), p_context, p_weight, p_limits,
    date_trunc('milliseconds', p_run_at),
    case when p_due then p_priority else h.priority end, case when p_due then p_head_run_at else h.run_at end,
    case when p_due then p_id else h.id end, p_cost, null::jsonb, null::jsonb, p_head_changed, p_jobs
  from _no_head() h;
$$;

-- Tells the router of staged jobs that were changed and stay: the next job of their partitions may be another, and due at another
-- time.
create or replace function _arrive_again(p_ids bigint[]) returns void language plpgsql as $$
begin
  insert into arrivals overriding user value
  select a.* from staged_jobs s
  cross join lateral _policy_and_key_of(s.partition_id) k
  cross join lateral _work_arrival(
    k.policy, s.partition_id, k.key, null, 0, null, null, null, s.run_at, s.cost, s.due, s.priority, s.run_at, s.id,
    p_jobs => 0) a
  where s.id = any(p_ids);
end
$$;

-- Stages one policy's jobs of a call, if they are several or have keys.
--
--   p_payload   that of the only job, if it comes apart: see _catch_unadmitted
--
-- Values that are the same for every row are variables. When each partition asked the batch for its version, 5,000 jobs of
-- 500 partitions took 2.2 s instead of 0.2.
--
-- It is longer than others, because its steps pass rows of jobs. To pass six of their columns as an array, as a function in
-- between would need, took 4 % longer.
create or replace function _stage_batch(
  p_policy text, p_version int, p_partitions json, p_jobs json, p_mode text, p_payload json default null
) returns setof staging language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off   -- as _allocate
as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_droppable boolean;
  v_cancels boolean;   -- older runs of their keys; else what says whether a job does (_cancel_older) is in `p_jobs`
  v_ids regclass := pg_get_serial_sequence('staged_jobs', 'id');
begin
  select _is_droppable(p.when_full, p.max_pending_in_all), p.cancels_after is not null into v_droppable, v_cancels
  from policies p where p.name = p_policy;
  v_droppable := coalesce(v_droppable, false);
  return query
  with sent as materialized (
    select (k.ordinality - 1)::int as p, k.*
    from rows from (json_to_recordset(p_partitions)
      as (key text, lane text, shard text, context jsonb, weight float8, limits jsonb, "like" int)) with ordinality k
  ),
  partition as materialized (
    select k.p, k.key, coalesce(k.shard, 'default') as shard, k.context, k.weight, coalesce(k.limits, l.limits) as limits,
      case when k.key is not null then _partition_id(p_policy, k.key, k.lane) end as id
    from sent k left join sent l on l.p = k."like"
  ),
  job as materialized (
    select j.id, j.n, j.task, coalesce(p_payload, j.payload, '{}') as payload, j."queueName" as queue_name,
      case when j."maxWait" is null then _run_at(j."runAt")
        else v_now + make_interval(secs => j.wait) end as run_at, j."runAt" is not null as run_at_given,
      j."maxAttempts"::smallint as max_attempts, j."jobKey" as job_key, coalesce(j.priority, 0)::smallint as priority,
      j.flags, coalesce(j.cost, 1) as cost, j."maxWait" is null and _run_at(j."runAt") <= v_now as due,
      v_now as created_at, v_now + make_interval(secs => j."maxWait") as debounced_until,
      j.key as partition_key, k.id as partition_id, k.key, k.shard,
      -- a debounced job is due by this clock, so it expires by it
      case when j."maxWait" is not null and j."expiresAfter" is not null
        then v_now + make_interval(secs => j.wait + j."expiresAfter") else j.expires_at end as expires_at,
      j."maxWait" is not null and j."expiresAfter" is not null as expires_late,
      j.sort_at, left(j.traceparent, 55) as traceparent   -- a check of its form took 15 us: readers check it
    from (
      select nextval(v_ids) as id, j.*
      from _job_records(p_jobs) j
      where p_mode <> 'unsafe_dedupe' or not exists (
        select from _jobs_of_key(j."jobKey"))
    ) j
    left join partition k on k.p = j.p
  ),
  -- Most jobs have no key. With "on conflict" each is written twice to the WAL, and 10,000 take half as long again.
  unkeyed as (
    insert into staged_jobs (
      id, partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, preserve_run_at,
      priority, flags, cost, due, created_at, droppable, traceparent, expires_at, sort_at)
    overriding system value
    select j.id, j.partition_id, j.task, j.payload, j.queue_name, j.run_at, j.run_at_given, j.max_attempts,
      p_mode = 'preserve_run_at', j.priority, j.flags, j.cost, j.due, j.created_at, v_droppable,
      j.traceparent, j.expires_at, j.sort_at
    from job j where j.job_key is null
  ),
  keyed as (
    insert into staged_jobs as s (
      id, partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, job_key, preserve_run_at,
      priority, flags, cost, due, created_at, droppable, known_job_id, known_revision,
      traceparent, expires_at, debounced_until, sort_at)
    overriding system value
    select j.id, j.partition_id, j.task, j.payload, j.queue_name, j.run_at, j.run_at_given, j.max_attempts, j.job_key,
      p_mode = 'preserve_run_at', j.priority, j.flags, j.cost, j.due, j.created_at, v_droppable, k.id, k.revision,
      j.traceparent, j.expires_at, j.debounced_until, j.sort_at
    from job j
    left join lateral (   -- one look at the index for each
      select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = j.job_key limit 1) k on true
    where j.job_key is not null order by j.job_key
    on conflict (job_key) where job_key is not null do update set
      partition_id = excluded.partition_id, task_identifier = excluded.task_identifier,
      payload = case
        when json_typeof(s.payload) = 'array' and json_typeof(excluded.payload) = 'array'
          then (s.payload::jsonb || excluded.payload::jsonb)::json
        else excluded.payload end,
      queue_name = excluded.queue_name,
      run_at = case when p_mode = 'preserve_run_at' then s.run_at when excluded.debounced_until is null then excluded.run_at
        -- The danger: another session had the row locked, and gave it a later time meanwhile. A time from before the wait
        -- would bring the job forward again. So each add counts from when it has the row's lock: this is asked under it.
        else least(excluded.run_at + (clock_timestamp() - v_now), excluded.debounced_until, s.debounced_until) end,
      run_at_given = case when p_mode = 'preserve_run_at' then s.run_at_given else excluded.run_at_given end,
      due = case when p_mode = 'preserve_run_at' then s.run_at when excluded.debounced_until is null then excluded.run_at
        else s.debounced_until end <= v_now is true   -- a debounced one: it has waited for as long as it may
        and (s.waits_for is null or not (v_cancels or strpos(p_jobs::text, '"cancelsAfter"') > 0)),
      max_attempts = excluded.max_attempts, preserve_run_at = excluded.preserve_run_at,
      priority = excluded.priority, flags = excluded.flags, cost = excluded.cost,
      known_job_id = excluded.known_job_id, known_revision = excluded.known_revision,
      -- one that cancels no run waits for none, whatever the one before did
      waits_for = case when s.waits_for is not null and (v_cancels or strpos(p_jobs::text, '"cancelsAfter"') > 0) then s.waits_for end,
      retry_at = case when s.waits_for is not null and (v_cancels or strpos(p_jobs::text, '"cancelsAfter"') > 0) then s.retry_at end,
      parked_job_id = null, failures = 0, error = null,
      droppable = excluded.droppable,
      left_partition_id = s.partition_id, traceparent = excluded.traceparent,
      expires_at = case when excluded.debounced_until is null or excluded.expires_at is null then excluded.expires_at
        -- as much later as it is due. The list is made once, when the first such job needs it.
        when excluded.job_key = any((select array_agg(j.job_key) from job j where j.expires_late)::text[])
          then excluded.expires_at + (clock_timestamp() - v_now) else excluded.expires_at end,
      debounced_until = least(s.debounced_until, excluded.debounced_until),
      sort_at = excluded.sort_at
    -- a job of this key was committed meanwhile: it stays if the mode is unsafe_dedupe, or if a copied job is older
    where case p_mode when 'unsafe_dedupe' then false
      when 'stage_copy' then (s.known_job_id, s.known_revision)
        is distinct from (excluded.known_job_id, excluded.known_revision)
      else true end
    returning s.id, s.run_at, s.job_key, s.due, s.created_at, s.left_partition_id
  ),
  -- the partitions of staged jobs that were replaced: their next job may be another now
  replaced as materialized (
    select k.left_partition_id as id, count(*)::int as jobs from keyed k
    where k.left_partition_id is not null group by k.left_partition_id
  ),
  -- the rows as they are staged: a job that replaced another has that one's id and perhaps its time
  put as materialized (
    select j.id, j.run_at, j.due, j.created_at, j.n, j.task, j.queue_name, j.max_attempts, j.job_key, j.priority, j.flags,
      j.cost, j.partition_id, j.partition_key, j.key, j.shard
    from job j where j.job_key is null
    union all
    select k.id, k.run_at, k.due, k.created_at, j.n, j.task, j.queue_name, j.max_attempts, j.job_key, j.priority, j.flags,
      j.cost, j.partition_id, j.partition_key, j.key, j.shard
    from keyed k join job j on j.job_key = k.job_key
  ),
  arrived as (
    insert into arrivals overriding user value
    select a.*
    from (
      select p.partition_id, min(p.run_at) as due_at, min(p.cost) as min_cost,
        bool_or(not p.due) as later, count(*)::int as jobs
      from put p
      where p.partition_id is not null group by p.partition_id
    ) w
    left join (
      select distinct on (p.partition_id) p.partition_id, p.priority, p.run_at, p.id from put p where p.due
      order by p.partition_id, p.priority, p.run_at, p.id
    ) f on f.partition_id = w.partition_id
    join partition k on k.id = w.partition_id
    left join replaced r on r.id = k.id
    cross join lateral _work_arrival(
      p_policy, k.id, k.key, k.shard, p_version, k.context, k.weight, k.limits, w.due_at, w.min_cost, f.id is not null,
      f.priority, f.run_at, f.id,
      -- or one that is not due yet: the arrival has only the due ones
      r.id is not null or (f.id is not null and w.later), w.jobs - coalesce(r.jobs, 0)) a
  ),
  keyless as (
    insert into keyless_jobs (staged_id, policy, partition_key)
    select p.id, p_policy, p.partition_key from put p where p.partition_id is null
    on conflict (staged_id) do update set
      policy = excluded.policy, partition_key = excluded.partition_key, retry_at = '-infinity'
  ),
  notified as materialized (
    select _notify(p_policy) where exists (select from put)
  ),
  left_behind as materialized (
    select _head_changed(array_agg(k.left_partition_id), -1) from keyed k
    where k.left_partition_id not in (select p.partition_id from put p where p.partition_id is not null) having count(*) > 0
  )
  select p.n, true, p.id, p.task, p.queue_name, p.run_at, _max_attempts(p.max_attempts), p.job_key,
    p.priority::int, p.flags, p.created_at, p_policy, p.key, p.shard, null::json, false
  from put p
  -- PostgreSQL skips a SELECT that nobody reads, and these have effects
  where (select count(*) from notified) >= 0 and (select count(*) from left_behind) >= 0;
end
$$;

-- Whether jobs that are staged under this bound may be dropped later, because newer ones need their room.
create or replace function _is_droppable(p_when_full text, p_max_in_all int) returns boolean
language sql immutable as $$
  select p_max_in_all is not null and p_when_full = 'drop_oldest';
$$;

-- The job of this key, staged or in Graphile Worker. A job that this package admitted has its staged id.
create or replace function _jobs_of_key(p_key text)
returns table (
  id bigint, queue_name text, run_at timestamptz, max_attempts int, job_key text, priority int, flags text[],
  created_at timestamptz, partition_id uuid, task text
) language sql stable as $$
  select s.id, s.queue_name, s.run_at, _max_attempts(s.max_attempts), s.job_key, s.priority::int, s.flags,
    s.created_at, s.partition_id, s.task_identifier
  from staged_jobs s where s.job_key = p_key
  union all
  select coalesce(f.staged_id, j.id), j.queue_name, j.run_at, j.max_attempts::int, j.key, j.priority::int,
    array(select k from jsonb_object_keys(j.flags) k), j.created_at, f.partition_id, j.task_identifier
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join in_flight_jobs f on f.job_id = j.id
  where j.key = p_key
  limit 1;
$$;

-- Has routing look at these partitions again, because their next job may be another. It was removed, set to a later time,
-- or replaced under its job key. A partition that waits for tokens would otherwise go on waiting for as many as its former
-- next job costs. This locks no partition: it leaves an arrival, and the router changes the partition.
--
--   p_each   what each mention of a partition adds to its count of staged jobs
create or replace function _head_changed(p_partition_ids uuid[], p_each int default 0) returns void
language plpgsql volatile as $$
declare
  v_policies text[];
begin
  with arrived as (
    insert into arrivals (policy, partition_id, key, head_changed, jobs)
    select k.policy, u.id, k.key, true, u.jobs
    from (
      select x.id, count(*) * p_each as jobs from unnest(p_partition_ids) x (id) where x.id is not null group by x.id
    ) u
    cross join lateral _policy_and_key_of(u.id) k
    returning policy
  )
  select array_agg(distinct a.policy) into v_policies from arrived a;
  perform _notify(u.policy) from unnest(v_policies) u (policy);
end
$$;

-- _stage_batch in mode unsafe_dedupe: if a key already has a job, the new job is not staged, and that one is returned.
-- Another session may add a job of the key after the look and before the insert. So what the insert finds is looked up
-- again.
create or replace function _stage_deduped(
  p_policy text, p_version int, p_partitions json, p_jobs json
) returns setof staging language plpgsql as $$
#variable_conflict use_column
declare
  v_left json := p_jobs;
  v_rows staging[];
begin
  for v_try in 1..20 loop
    v_rows := array(select s from _known_jobs(p_policy, p_partitions, v_left) s);
    return query select s.* from unnest(v_rows) s;
    v_left := _jobs_without(v_left, v_rows);
    exit when v_left is null;
    v_rows := array(select s from _stage_batch(
      p_policy, p_version, p_partitions, v_left, 'unsafe_dedupe') s);
    return query select s.* from unnest(v_rows) s;
    perform _count_pending(p_policy, cardinality(v_rows));
    v_left := _jobs_without(v_left, v_rows);
    exit when v_left is null;
  end loop;
  if v_left is not null then
    raise exception 'dispatch_policy: job_key_mode is unsafe_dedupe, expected keys at rest: in each of 20 tries other sessions added and removed jobs of the same keys. None of the jobs was added: try again'
      using errcode = 'serialization_failure';
  end if;
end
$$;

-- For each of these jobs whose key is taken, the job that has the key. If that job is outside the policy, the row says
-- only that the new job was not added, and has no id. A role that may add jobs of this policy must not read others.
create or replace function _known_jobs(p_policy text, p_partitions json, p_jobs json)
returns setof staging language sql stable as $$
  select j.n, true, e.id, j.task, e.queue_name, e.run_at, e.max_attempts, e.job_key, e.priority, e.flags, e.created_at,
    p_policy, coalesce(q.key, k.key), coalesce(q.shard, k.shard), null::json, false
  from _job_records(p_jobs) j
  cross join lateral _jobs_of_key(j."jobKey") e
  left join partitions q on q.id = e.partition_id
  -- if it is not routed yet, only this call knows it
  left join lateral (
    select p_partitions -> j.p ->> 'key' as key, coalesce(p_partitions -> j.p ->> 'shard', 'default') as shard
    where _partition_id(p_policy, p_partitions -> j.p ->> 'key', p_partitions -> j.p ->> 'lane') = e.partition_id
  ) k on true
  where _has_task(p_policy, e.task)
  union all
  select n.* from _not_added(p_policy, p_partitions, p_jobs) n
  cross join lateral _jobs_of_key(n.job_key) e
  where not _has_task(p_policy, e.task);
$$;

-- The rows of jobs that were not added: what the caller gave, without an id.
create or replace function _not_added(p_policy text, p_partitions json, p_jobs json)
returns setof staging language sql stable as $$
  select j.n, true, null::bigint, j.task, j."queueName", _run_at(j."runAt"), _max_attempts(j."maxAttempts"),
    j."jobKey", coalesce(j.priority, 0), j.flags, now(), p_policy,
    p_partitions -> j.p ->> 'key', p_partitions -> j.p ->> 'shard', null::json, false
  from _job_records(p_jobs) j;
$$;

-- These jobs without those that have a row in `p_rows`. Null if none is left.
create or replace function _jobs_without(
  p_jobs json, p_rows staging[]
) returns json language sql stable as $$
  select json_agg(j.value order by j.ordinality) from json_array_elements(p_jobs) with ordinality j
  where (j.value ->> 'n')::int not in (select r.n from unnest(p_rows) r);
$$;

-- The jobs of a staging call that go to Graphile Worker as they are, typed, each with its payload (see _stage_plain).
create or replace function _plain_records(p_jobs json, p_payloads text[])
returns table (
  n int, task text, payload json, "queueName" text, "runAt" timestamptz, "maxAttempts" int, "jobKey" text, priority int,
  flags text[], wait float8, "maxWait" float8
) language sql stable as $$
  select j.n, j.task, coalesce(y.payload::json, j.payload), j."queueName", j."runAt", j."maxAttempts", j."jobKey",
    j.priority, j.flags, j.wait, j."maxWait"
  from _job_records(p_jobs) j
  left join unnest(p_payloads) with ordinality y (payload, place) on y.place = j.p;
$$;

-- For keyed jobs that were just staged, if jobs of their policy were unstaged meanwhile. The call may have waited until the
-- job before was unstaged, which Graphile Worker has now. That one looks newer than the staged job, which would be dropped
-- for it. So the staged job records it as known. This is a statement of its own, because it must see what was committed
-- during the wait.
--
--   p_policy   as it was read before the jobs were staged
create or replace function _know_unstaged(
  p_policy policies, p_jobs json
) returns void language plpgsql as $$
begin
  if exists (
    select from policies p
    where p.id = (p_policy).id and p.unstaged_at = (p_policy).unstaged_at) then
    return;
  end if;
  update staged_jobs s set known_job_id = j.id, known_revision = j.revision
  from _job_records(p_jobs) k
  cross join lateral (
    select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k."jobKey" limit 1) j
  where s.job_key = k."jobKey" and s.parked_job_id is null;
end
$$;
