-- What SQL adds: policy and partition of each job are worked out here.

-- Works out policy and partition of jobs added from SQL, and stages them in the order given, with the rights of the schema's
-- owner. Jobs of tasks without a policy are left to the caller: their `staged` is null, and their `job` has the form that
-- _stage_plain reads, with the place of its payload among the specs.
--
--   p_debounces     for each job { "waitSeconds", "maxWaitSeconds" }, or null: that of the policy counts; null: of all jobs
--   p_traceparent   the trace context of the jobs; null: that of the setting dispatch_policy.traceparent, if it is set
create or replace function :DISPATCH_POLICY_SCHEMA.add_governed(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_traceparent text default null,
  p_expires_at timestamptz[] default null, p_debounces json[] default null
) returns setof staging language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_traceparent text := _traceparent(
    coalesce(p_traceparent, current_setting('dispatch_policy.traceparent', true)));
  v_batches json;
  v_batch record;
  v_plain json;
begin
  if p_partition_keys is not null and cardinality(p_partition_keys) <> cardinality(p_specs) then
    raise exception 'dispatch_policy: partition_keys has % entries, specs has %; expected one key (or null) per job',
      cardinality(p_partition_keys), cardinality(p_specs) using errcode = 'DPARG';
  end if;
  perform _check_specs(p_specs, p_mode, p_expires_at, p_debounces);
  perform _check_key(k.key) from unnest(p_partition_keys) k (key);
  if exists (select from unnest(p_specs) s where s.flags is not null and exists (
    select from unnest(s.flags) f where _is_own_flag(f))) then
    raise exception 'dispatch_policy: flags that begin with "dispatch_policy:" are reserved' using errcode = 'DPARG';
  end if;
  with spec as (
    -- unnested side by side, because an array subscript walks the array for each job
    select s.* from rows from (unnest(p_specs), unnest(coalesce(p_partition_keys, '{}')),
        unnest(coalesce(p_expires_at, '{}')), unnest(coalesce(p_debounces, '{}'))) with ordinality
      s (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, partition_key, expires_at, debounce, n)
  ),
  placed as (
    select s.*, p.name as policy, p.definition,
      (p.definition ->> 'resolvesInSql')::boolean as resolves,
      case when p.id is null then null
        else coalesce(s.partition_key, _path_key(p.definition, s.payload, s.identifier)) end
        as key,
      coalesce(s.debounce, case when s.job_key is not null and s.run_at is null and p_mode = 'replace'
        then (p.definition -> 'debounce')::json end) as debounced
    from spec s
    left join policy_tasks t on t.task_identifier = s.identifier
    left join policies p on p.id = t.policy_id
  ),
  job as (
    select p.policy, p.n, json_build_object(
      'n', p.n, 'task', p.identifier, 'payload', case when p.policy is not null then p.payload end,
      'queueName', coalesce(p.queue_name, p.definition #>> '{job,queueName}'), 'runAt', p.run_at,
      'maxAttempts', coalesce(p.max_attempts, (p.definition #>> '{job,maxAttempts}')::int), 'jobKey', p.job_key,
      'priority', coalesce(p.priority, (p.definition #>> '{job,priority}')::int),
      'flags', coalesce(to_json(p.flags), (p.definition #> '{job,flags}')::json),
      'cost', case when p.resolves then p.definition -> 'cost' end, 'key', p.partition_key,
      'traceparent', v_traceparent, 'wait', p.debounced -> 'waitSeconds', 'maxWait', p.debounced -> 'maxWaitSeconds',
      'byDeadline', p.definition ->> 'order' = 'deadline', 'expiresAt', p.expires_at,
      'expiresAfter', case when p.expires_at is null then p.definition -> 'expiresAfterSeconds' end,
      'p', case when p.policy is null then p.n when p.resolves and p.key is not null
        then dense_rank() over (partition by p.policy, p.resolves and p.key is not null order by p.key) - 1 end) as job
    from placed p
  ),
  partition as (
    select d.policy, jsonb_agg(jsonb_build_object(
      'key', d.key, 'shard', d.definition ->> 'shard', 'context', '{}'::jsonb, 'weight', d.definition -> 'weight',
      'limits', case when d.place = 0 then _constant_limits(d.definition) end,
      'like', case when d.place > 0 then 0 end) order by d.key) as partitions
    from (
      select d.*, row_number() over (partition by d.policy order by d.key) - 1 as place
      from (select distinct p.policy, p.key, p.definition from placed p where p.resolves and p.key is not null) d
    ) d
    group by d.policy
  )
  select json_agg(b.batch) filter (where b.policy is not null), min(b.jobs::text) filter (where b.policy is null)
  into v_batches, v_plain from (
    select j.policy, case when j.policy is null then json_agg(j.job order by j.n) end as jobs,
      case when j.policy is not null then json_build_object('policy', j.policy, 'version', p.version,
        -- asked once a policy: in the group by, it was sorted with each job, gigabytes of it
        'partitions', coalesce((select k.partitions from partition k where k.policy = j.policy), '[]'),
        'jobs', json_agg(j.job order by j.n)) end as batch
    from job j
    left join policies p on p.name = j.policy
    group by j.policy, p.version
  ) b;
  perform _check_mode(p_mode);
  for v_batch in   -- in the order of their policies, see _stage
    select b.* from json_to_recordset(v_batches) b (policy text, version int, partitions json, jobs json) order by b.policy
  loop
    return query select s.* from :DISPATCH_POLICY_SCHEMA.enqueue(
      v_batch.policy, v_batch.version, v_batch.partitions, v_batch.jobs, p_mode) s;
  end loop;
  return query
  select (row((j.value ->> 'n')::int, null, null, null, null, null, null, null, null, null, null, null, null, null, j.value, null)::staging).*
  from json_array_elements(v_plain) j;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.add_governed from public;

-- Raises for a job that must not be staged: Graphile Worker would refuse it (the bounds are its own), or it is to expire or to be
-- debounced, and cannot.
create or replace function _check_specs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_expires_at timestamptz[], p_debounces json[]
) returns void language plpgsql as $$
declare
  v_wrong record;
begin
  if cardinality(p_expires_at) <> cardinality(p_specs) then
    raise exception 'dispatch_policy: expires_at has % entries, specs has %; expected one time (or null) per job',
      cardinality(p_expires_at), cardinality(p_specs) using errcode = 'DPARG';
  end if;
  if coalesce(p_expires_at, '{}') = '{}' and coalesce(p_debounces::text[], '{}') = '{}' then   -- nearly always
    select s.*, null::timestamptz as expires_at, null as debounce, null as policy_id into v_wrong from unnest(p_specs) s
    where length(s.queue_name) > 128 or length(s.job_key) not between 1 and 512 or s.max_attempts < 1 limit 1;
  else
    select s.*, t.policy_id into v_wrong
    from rows from (unnest(p_specs), unnest(p_expires_at), unnest(p_debounces))
      s (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, expires_at, debounce)
    left join policy_tasks t on t.task_identifier = s.identifier and (s.expires_at is not null or s.debounce is not null)
    where (t.policy_id is null and (s.expires_at is not null or s.debounce is not null))
      or (s.debounce is not null and (s.job_key is null or s.run_at is not null or p_mode <> 'replace'))
      or length(s.queue_name) > 128 or length(s.job_key) not between 1 and 512 or s.max_attempts < 1
    limit 1;
  end if;
  if found then
    raise exception using errcode = 'DPARG', message = 'dispatch_policy: a job of ' || v_wrong.identifier || ': ' || case
      when v_wrong.expires_at is not null and v_wrong.policy_id is null
        then format('it expires at %s, expected no such time: its task has no policy, and Graphile Worker''s own jobs do not expire',
          v_wrong.expires_at)
      when v_wrong.debounce is not null and v_wrong.job_key is null
        then 'job_key is null, expected one: debounce puts the adds of a key together. Give a job_key, or no debounce'
      when v_wrong.debounce is not null and v_wrong.run_at is not null
        then format('run_at is %s, expected none: debounce says when the job is due. Leave one of the two out', v_wrong.run_at)
      when v_wrong.debounce is not null and p_mode <> 'replace'
        then format('job_key_mode is %s, expected replace: debounce moves the job of its key. Leave one of the two out', p_mode)
      when v_wrong.debounce is not null and v_wrong.policy_id is null
        then 'it has debounce, expected none: its task has no policy, and Graphile Worker knows no longest wait. Declare a policy, or give run_at with the job key'
      when v_wrong.max_attempts < 1 then format('max_attempts is %s, expected 1 to 32767', v_wrong.max_attempts)
      when length(v_wrong.queue_name) > 128
        then format('queue_name has %s characters, expected at most 128', length(v_wrong.queue_name))
      else format('job_key has %s characters, expected 1 to 512', length(v_wrong.job_key)) end;
  end if;
end
$$;
