-- Jobs whose partition key only JavaScript can work out.

-- A page of the staged jobs whose partition only JavaScript can work out, locked for a process that has the policy. It has at
-- most `p_limit` jobs, and one _portion of payloads. Its transaction ends with _key_jobs. Jobs that another session has
-- locked are left to a later page: another process works on them, or an application reschedules one. A process of another
-- version than the one in force gets none, if another one will get them (_leader_keys).
create or replace function _keyless_jobs(p_policy text, p_version int, p_limit int)
returns table (
  staged_id bigint, partition_key text, task_identifier text, payload json, queue_name text, priority int,
  run_at timestamptz, flags text[], job_key text
) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with turn as materialized (
    select not exists (
      select from policies p
      where p.name = p_policy and p.version <> p_version and _leader_keys(p)) as is_ours
  ),
  first as materialized (
    select k.staged_id from keyless_jobs k
    where k.policy = p_policy and k.retry_at <= clock_timestamp() and (select t.is_ours from turn t)
    order by k.staged_id limit p_limit for update skip locked
  ),
  -- the rows of jobs that were removed meanwhile, or replaced by one with a partition
  stale as (
    delete from keyless_jobs k
    where k.staged_id in (select f.staged_id from first f) and not exists (
      select from staged_jobs s where s.id = k.staged_id and s.partition_id is null)
  ),
  page as materialized (
    select k.staged_id, k.partition_key, s.task_identifier, s.payload, s.queue_name, s.priority::int as priority, s.run_at,
      s.flags, s.job_key
    from keyless_jobs k
    join staged_jobs s on s.id = k.staged_id and s.partition_id is null
    where k.policy = p_policy and k.retry_at <= clock_timestamp() and (select t.is_ours from turn t)
    order by k.staged_id limit p_limit for update of k, s skip locked
  )
  select w.staged_id, w.partition_key, w.task_identifier, w.payload, w.queue_name, w.priority, w.run_at, w.flags, w.job_key
  from (
    select p.*, sum(octet_length(p.payload::text)) over (
      order by p.staged_id rows between unbounded preceding and 1 preceding) as bytes_before
    from page p
  ) w
  where _portion(w.bytes_before) = 0 order by w.staged_id;
$$;

-- Stages jobs in the partitions that JavaScript worked out for them.
--
--   p_jobs   json array of { "id", "cost", "deadline", "partition": { "key", "lane", "shard", "context", "weight", "limits" } }. A
--            job whose partition cannot be worked out is { "id", "error" }: it is quarantined, and tried again later.
create or replace function _key_jobs(p_policy text, p_version int, p_jobs json)
returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with job as materialized (
    select (j.value ->> 'id')::bigint as id, (j.value ->> 'cost')::float8 as cost, j.value ->> 'error' as error,
      (j.value ->> 'deadline')::timestamptz as deadline,
      j.value #>> '{partition,key}' as key, j.value -> 'partition' as partition
    from json_array_elements(p_jobs) j
  ),
  keyed as (
    update staged_jobs s set
      partition_id = _partition_id(p_policy, j.key, j.partition ->> 'lane'), cost = j.cost, error = null, failures = 0,
      due = s.run_at <= clock_timestamp() and s.waits_for is null, sort_at = coalesce(j.deadline, s.sort_at)
    from job j where s.id = j.id and s.partition_id is null and j.error is null
    returning s.*
  ),
  refused as (
    update staged_jobs s set error = j.error, failures = least(s.failures + 1, 30000)
    from job j where s.id = j.id and s.partition_id is null and j.error is not null
    returning s.id, s.failures
  ),
  done as (
    delete from keyless_jobs k where k.staged_id in (select j.id from job j where j.error is null)
  ),
  later as (
    update keyless_jobs k set
      failures = r.failures, retry_at = clock_timestamp() + _quarantine_for(r.failures)
    from refused r where k.staged_id = r.id
  )
  insert into arrivals overriding user value
  select a.* from keyed s join job j on j.id = s.id
  cross join lateral _work_arrival(
    p_policy, s.partition_id, j.key, j.partition ->> 'shard',
    coalesce((select _generation_of(p, p_version)
      from policies p where p.name = p_policy), -1), (j.partition -> 'context')::jsonb,
    (j.partition ->> 'weight')::float8, (j.partition -> 'limits')::jsonb, s.run_at, s.cost, s.due, s.priority, s.run_at,
    s.id) a
  order by s.id;   -- the newest job's is the newest arrival
$$;
