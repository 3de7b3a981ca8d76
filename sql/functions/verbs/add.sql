-- Verbs: add jobs.

-- Graphile Worker's add_job, with the same parameters in the same order and ours last. Stages the job if its task has a
-- policy, else passes it on.
--
-- `partition_key` names the partition. Without it, this function works the key out if the policy's partitionBy is a path.
-- Any other key is worked out by the next tick of a process that has the policy.
--
-- A job that is not admitted until `expires_at` is dropped. Without it, the policy's `expiresAfter` counts.
--
-- Each add of a `job_key` with `debounce_wait` postpones the job to that time from now. At the latest it is due
-- `debounce_max_wait` after the first add. Without them, the policy's `debounce` counts.
--
--   select dispatch_policy.add_job('fetch_endpoint', '{"endpointId": "ep1"}');
create or replace function :DISPATCH_POLICY_SCHEMA.add_job(
  identifier text, payload json default null, queue_name text default null, run_at timestamptz default null,
  max_attempts int default null, job_key text default null, priority int default null, flags text[] default null,
  job_key_mode text default 'replace', partition_key text default null, expires_at timestamptz default null,
  debounce_wait interval default null, debounce_max_wait interval default null
) returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_added :DISPATCH_POLICY_SCHEMA.added_job;
begin
  -- qualified: who may not use that schema is told so
  select a.* into v_added from :DISPATCH_POLICY_INTERNAL._add_jobs(
    array[row(
      identifier, payload, queue_name, run_at, max_attempts::smallint, job_key, priority::smallint, flags
    ):::GRAPHILE_WORKER_SCHEMA.job_spec], coalesce(job_key_mode, 'replace'), array[partition_key],
    case when expires_at is not null then array[expires_at] end, debounce_wait, debounce_max_wait) a;
  return v_added;
end
$$;

-- Graphile Worker's add_jobs, with `partition_keys` beside `specs`: null if a key is to be worked out. The same with
-- `expires_at`: null if the policy's `expiresAfter` counts. `debounce_wait` and `debounce_max_wait` apply to all jobs of the
-- call, as in add_job.
--
-- With `then_job`, the jobs are a group. Once all have ended for good, that job is added, with the counts in its payload as
-- "_group". All tasks must have a policy.
create or replace function :DISPATCH_POLICY_SCHEMA.add_jobs(
  specs :GRAPHILE_WORKER_SCHEMA.job_spec[], job_key_preserve_run_at boolean default false, partition_keys text[] default null,
  expires_at timestamptz[] default null, debounce_wait interval default null, debounce_max_wait interval default null,
  then_job :GRAPHILE_WORKER_SCHEMA.job_spec default null
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select a.* from :DISPATCH_POLICY_INTERNAL._add_jobs(   -- qualified: as in add_job
    specs, case when job_key_preserve_run_at then 'preserve_run_at' else 'replace' end, partition_keys, expires_at,
    debounce_wait, debounce_max_wait, then_job) a;
$$;

-- Stages jobs added from SQL if their task has a policy. Passes the others on to Graphile Worker, with the caller's rights.
create or replace function _add_jobs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_expires_at timestamptz[],
  p_wait interval, p_max_wait interval, p_then :GRAPHILE_WORKER_SCHEMA.job_spec default null
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language plpgsql as $$
#variable_conflict use_column
declare
  v_debounces json[];
begin
  if p_wait is null and p_max_wait is null then
    null;
  elsif p_wait is null or p_max_wait is null then
    raise exception 'dispatch_policy: % is missing: expected debounce_wait and debounce_max_wait together, or neither. Without a longest wait, run_at and a job_key do the same',
      case when p_wait is null then 'debounce_wait' else 'debounce_max_wait' end using errcode = 'DPARG';
  elsif p_wait <= '0' or not isfinite(p_wait) then
    raise exception 'dispatch_policy: debounce_wait is %, expected an interval longer than 0', p_wait using errcode = 'DPARG';
  elsif p_max_wait < p_wait or not isfinite(p_max_wait) then
    raise exception 'dispatch_policy: debounce_max_wait is %, expected an interval of at least debounce_wait (%)',
      p_max_wait, p_wait using errcode = 'DPARG';
  elsif extract(epoch from p_max_wait) > 86400e6 then
    raise exception 'dispatch_policy: debounce_max_wait is %, expected at most a million days', p_max_wait
      using errcode = 'DPARG';
  else
    v_debounces := array_fill(
      json_build_object('waitSeconds', extract(epoch from p_wait), 'maxWaitSeconds', extract(epoch from p_max_wait)),
      array[coalesce(cardinality(p_specs), 0)]);
  end if;
  if p_then is distinct from null then
    return query
    select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
      a.created_at, a.policy, a.partition, a.shard, a.id is null or (a.staged and a.job is not null)
    from :DISPATCH_POLICY_SCHEMA.add_group(
      p_specs, p_mode, p_partition_keys, p_expires_at, v_debounces, p_then) a order by a.n;
    return;
  end if;
  return query
  select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
    a.created_at, a.policy, a.partition, a.shard, a.id is null or (a.staged and a.job is not null)
  from _stage_specs(p_specs, p_mode, p_partition_keys, null, p_expires_at, v_debounces) a order by a.n;
end
$$;
