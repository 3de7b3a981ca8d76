-- Stages jobs added from SQL where their task has a policy, and passes them on where not, with the caller's rights.
create or replace function :DISPATCH_POLICY_SCHEMA._add_jobs(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[]
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language plpgsql as $$
#variable_conflict use_column
begin
  return query
  with governed as materialized (
    select g.* from :DISPATCH_POLICY_SCHEMA._add_governed(p_specs, p_mode, p_partition_keys) g
  ),
  added as (
    select g.* from governed g where g.staged is not null
    union all
    select s.* from (select json_agg(g.job) as jobs from governed g where g.staged is null) plain
    cross join lateral :DISPATCH_POLICY_SCHEMA._stage_plain(
      plain.jobs, p_mode, array(select p.payload::text from unnest(p_specs) p)) s
    where plain.jobs is not null
  )
  select a.id, a.staged, a.task_identifier, a.queue_name, a.run_at, a.max_attempts, a.job_key, a.priority, a.flags,
    a.created_at, a.policy, a.partition, a.shard, a.id is null
  from added a order by a.n;
end
$$;

-- Works out policy and partition of jobs added from SQL, and stages them in the order they were given, with the rights
-- of the schema's owner. Those of tasks without a policy it leaves alone: `staged` null, `job` as _stage_plain takes it, with
-- the place of its payload among the specs.
create or replace function :DISPATCH_POLICY_SCHEMA._add_governed(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[]
) returns setof :DISPATCH_POLICY_SCHEMA._private_staging language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_batches json;
  v_plain json;
begin
  if p_partition_keys is not null and cardinality(p_partition_keys) <> cardinality(p_specs) then
    raise exception 'dispatch_policy: partition_keys has % entries, specs has %; expected one key (or null) per job',
      cardinality(p_partition_keys), cardinality(p_specs) using errcode = 'DPARG';
  end if;
  perform :DISPATCH_POLICY_SCHEMA._check_key(k.key) from unnest(p_partition_keys) k (key);
  perform :DISPATCH_POLICY_SCHEMA._check_specs(p_specs);
  if exists (select from unnest(p_specs) s where s.flags is not null and exists (
    select from unnest(s.flags) f where f like 'dispatch\_policy:%')) then
    raise exception 'dispatch_policy: flags that begin with "dispatch_policy:" are reserved' using errcode = 'DPARG';
  end if;
  with spec as (
    -- side by side: an array subscript walks the array for each job
    select s.* from rows from (unnest(p_specs), unnest(coalesce(p_partition_keys, '{}'))) with ordinality
      s (identifier, payload, queue_name, run_at, max_attempts, job_key, priority, flags, partition_key, n)
  ),
  placed as (
    select s.*, p.name as policy, p.definition,
      (p.definition ->> 'resolvesInSql')::boolean as resolves,
      case when p.id is null then null
        else coalesce(s.partition_key, :DISPATCH_POLICY_SCHEMA._path_key(p.definition, s.payload, s.identifier)) end
        as key
    from spec s
    left join :DISPATCH_POLICY_SCHEMA._private_policy_tasks t on t.task_identifier = s.identifier
    left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = t.policy_id
  ),
  job as (
    select p.policy, p.n, json_build_object(
      'n', p.n, 'task', p.identifier, 'payload', case when p.policy is not null then p.payload end,
      'queueName', coalesce(p.queue_name, p.definition #>> '{job,queueName}'), 'runAt', p.run_at,
      'maxAttempts', coalesce(p.max_attempts, (p.definition #>> '{job,maxAttempts}')::int), 'jobKey', p.job_key,
      'priority', coalesce(p.priority, (p.definition #>> '{job,priority}')::int),
      'flags', coalesce(to_json(p.flags), (p.definition #> '{job,flags}')::json),
      'cost', case when p.resolves then p.definition -> 'cost' end, 'key', p.partition_key,
      'p', case when p.policy is null then p.n when p.resolves and p.key is not null
        then dense_rank() over (partition by p.policy, p.resolves and p.key is not null order by p.key) - 1 end) as job
    from placed p
  ),
  partition as (
    select d.policy, jsonb_agg(jsonb_build_object(
      'key', d.key, 'shard', d.definition ->> 'shard', 'context', '{}'::jsonb, 'weight', d.definition -> 'weight',
      'limits', case when d.place = 0 then :DISPATCH_POLICY_SCHEMA._constant_limits(d.definition) end,
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
        -- asked once a policy: grouped by, it was sorted with each job, gigabytes of it
        'partitions', coalesce((select k.partitions from partition k where k.policy = j.policy), '[]'),
        'jobs', json_agg(j.job order by j.n)) end as batch
    from job j
    left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.name = j.policy
    group by j.policy, p.version
  ) b;
  return query
  select s.* from :DISPATCH_POLICY_SCHEMA._stage(v_batches, p_mode) s
  union all
  select (j.value ->> 'n')::int, null, null, null, null, null, null, null, null, null, null, null, null, null, j.value
  from json_array_elements(v_plain) j;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA._add_governed from public;

-- Graphile Worker's own bounds: a job that it would refuse must not be staged.
create or replace function :DISPATCH_POLICY_SCHEMA._check_specs(p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[])
returns void language plpgsql as $$
declare
  v_wrong record;
begin
  select s.* into v_wrong from unnest(p_specs) s
  where length(s.queue_name) > 128 or length(s.job_key) not between 1 and 512 or s.max_attempts < 1 limit 1;
  if found then
    raise exception using errcode = 'DPARG', message = 'dispatch_policy: a job of ' || v_wrong.identifier || ': ' || case
      when v_wrong.max_attempts < 1 then format('max_attempts is %s, expected 1 to 32767', v_wrong.max_attempts)
      when length(v_wrong.queue_name) > 128
        then format('queue_name has %s characters, expected at most 128', length(v_wrong.queue_name))
      else format('job_key has %s characters, expected 1 to 512', length(v_wrong.job_key)) end;
  end if;
end
$$;

-- The partition key at the dotted paths of a definition: bare for one path, a json array of texts for several. Null
-- when the definition's partitionBy is a function.
create or replace function :DISPATCH_POLICY_SCHEMA._path_key(p_definition jsonb, p_payload json, p_task text)
returns text language plpgsql stable as $$
declare
  v_keys text[];
begin
  if jsonb_typeof(p_definition -> 'partitionPaths') is distinct from 'array' then
    return null;
  end if;
  select array_agg(case json_typeof(p_payload #> v.path)
      when 'string' then p_payload #>> v.path
      when 'number' then trim_scale((p_payload #>> v.path)::numeric)::text   -- 7.00 and 1e3 are 7 and 1000 to JavaScript
      end order by x.ordinality)
  into v_keys from jsonb_array_elements_text(p_definition -> 'partitionPaths') with ordinality x (path, ordinality)
  cross join lateral (select string_to_array(x.path, '.') as path) v;
  if array_position(v_keys, null) is not null then
    raise exception 'dispatch_policy: the payload of % has no string or number at partitionBy path %', p_task,
      p_definition -> 'partitionPaths' ->> (array_position(v_keys, null) - 1) using errcode = 'DPKEY';
  end if;
  return :DISPATCH_POLICY_SCHEMA._check_key(
    case when cardinality(v_keys) = 1 then v_keys[1] else to_json(v_keys)::text end);
end
$$;

-- The key itself, unless it is too long.
create or replace function :DISPATCH_POLICY_SCHEMA._check_key(p_key text) returns text language plpgsql immutable as $$
begin
  if octet_length(p_key) > 1024 then
    raise exception 'dispatch_policy: partition key of % bytes, expected at most 1024: %...', octet_length(p_key),
      left(p_key, 60) using errcode = 'DPKEY';
  end if;
  return p_key;
end
$$;

-- The limits of a policy whose gates are constants.
create or replace function :DISPATCH_POLICY_SCHEMA._constant_limits(p_definition jsonb)
returns jsonb language sql immutable as $$
  select coalesce(jsonb_agg(
    (g.value -> 'values') || jsonb_build_object(
      'gate', g.value -> 'name', 'kind', g.value -> 'kind', 'scope', g.value -> 'scope', 'position', g.value -> 'position')
    order by (g.value ->> 'position')::int), '[]')
  from jsonb_array_elements(p_definition -> 'gates') g;
$$;
