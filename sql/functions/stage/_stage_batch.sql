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
  v_keyed boolean;
  v_ids regclass := pg_get_serial_sequence('staged_jobs', 'id');
begin
  select _is_droppable(p.when_full, p.max_pending_in_all), p.keyed_scopes
  into v_droppable, v_keyed from policies p where p.name = p_policy;
  v_droppable := coalesce(v_droppable, false);
  if v_keyed then   -- what an earlier job of the call says of a partition, for _mixed_keys
    insert into arrivals (
      policy, partition_id, key, shard, version, context, weight, limits)
    select p_policy, _partition_id(p_policy, k.key), k.key, coalesce(k.shard, 'default'), coalesce(p_version, 0),
      k.earlier -> 'context', k.weight, k.earlier -> 'limits'
    from json_to_recordset(p_partitions) as k (key text, shard text, weight float8, earlier jsonb)
    where k.earlier is not null;
  end if;
  return query
  with sent as materialized (
    select (k.ordinality - 1)::int as p, k.*
    from rows from (json_to_recordset(p_partitions)
      as (key text, shard text, context jsonb, weight float8, limits jsonb, "like" int)) with ordinality k
  ),
  partition as materialized (
    select k.p, k.key, coalesce(k.shard, 'default') as shard, k.context, k.weight, coalesce(k.limits, l.limits) as limits,
      case when k.key is not null then _partition_id(p_policy, k.key) end as id
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
        else _debounced_run_at(
          excluded.run_at, excluded.debounced_until, s.debounced_until, v_now) end,
      run_at_given = case when p_mode = 'preserve_run_at' then s.run_at_given else excluded.run_at_given end,
      due = case when p_mode = 'preserve_run_at' then s.run_at when excluded.debounced_until is null then excluded.run_at
        else s.debounced_until end <= v_now is true,   -- a debounced one: it has waited for as long as it may
      max_attempts = excluded.max_attempts, preserve_run_at = excluded.preserve_run_at,
      priority = excluded.priority, flags = excluded.flags, cost = excluded.cost,
      known_job_id = excluded.known_job_id, known_revision = excluded.known_revision,
      parked_job_id = null, retry_at = null, failures = 0, error = null, droppable = excluded.droppable,
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
