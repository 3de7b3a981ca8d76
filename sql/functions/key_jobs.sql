-- Jobs staged from SQL whose partition only JavaScript can work out: taken a page at a time by a process that has the
-- policy, in a transaction that ends with _key_jobs. Those that are locked are passed by, whoever is at them: another
-- process, or an application that reschedules one.
create or replace function :DISPATCH_POLICY_SCHEMA._keyless_jobs(p_policy text, p_limit int)
returns table (
  staged_id bigint, partition_key text, task_identifier text, payload json, queue_name text, priority int,
  run_at timestamptz, flags text[], job_key text
) language sql volatile
set search_path = pg_catalog, pg_temp as $$
  with first as materialized (
    select k.staged_id from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k
    where k.policy = p_policy and k.retry_at <= clock_timestamp()
    order by k.staged_id limit p_limit for update skip locked
  ),
  -- of jobs that were removed meanwhile, or replaced by one with a partition
  stale as (
    delete from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k
    where k.staged_id in (select f.staged_id from first f) and not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = k.staged_id and s.partition_id is null)
  )
  select k.staged_id, k.partition_key, s.task_identifier, s.payload, s.queue_name, s.priority::int, s.run_at, s.flags,
    s.job_key
  from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k
  join :DISPATCH_POLICY_SCHEMA._private_staged_jobs s on s.id = k.staged_id and s.partition_id is null
  where k.policy = p_policy and k.retry_at <= clock_timestamp()
  order by k.staged_id limit p_limit for update of k, s skip locked;
$$;

--   p_jobs   json array of { "id", "cost", "partition": { "key", "shard", "context", "weight", "limits" } }, or
--            { "id", "error" } for one that cannot be worked out: it is set aside, and tried again later
create or replace function :DISPATCH_POLICY_SCHEMA._key_jobs(p_policy text, p_version int, p_jobs json)
returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  with job as materialized (
    select (j.value ->> 'id')::bigint as id, (j.value ->> 'cost')::float8 as cost, j.value ->> 'error' as error,
      j.value #>> '{partition,key}' as key, j.value -> 'partition' as partition
    from json_array_elements(p_jobs) j
  ),
  keyed as (
    update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set
      partition_id = :DISPATCH_POLICY_SCHEMA._partition_id(p_policy, j.key), cost = j.cost, error = null, failures = 0,
      due = s.run_at <= clock_timestamp()
    from job j where s.id = j.id and s.partition_id is null and j.error is null
    returning s.*
  ),
  refused as (
    update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set error = j.error, failures = least(s.failures + 1, 30000)
    from job j where s.id = j.id and s.partition_id is null and j.error is not null
    returning s.id, s.failures
  ),
  done as (
    delete from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k where k.staged_id in (select j.id from job j where j.error is null)
  ),
  later as (
    update :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k set
      retry_at = clock_timestamp() + make_interval(secs => least(power(2, least(r.failures, 12)), 3600))
    from refused r where k.staged_id = r.id
  ),
  partition as (
    select distinct on (j.key) j.key, j.partition from job j where j.error is null order by j.key, j.id desc
  )
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (
    policy, partition_id, key, shard, version, context, weight, limits, due_at, head_priority, head_run_at, head_id,
    min_cost)
  select p_policy, s.partition_id, k.key, k.partition ->> 'shard', p_version, (k.partition -> 'context')::jsonb,
    (k.partition ->> 'weight')::float8, (k.partition -> 'limits')::jsonb, date_trunc('milliseconds', s.run_at),
    case when s.due then s.priority else 32767 end, case when s.due then s.run_at else 'infinity' end,
    case when s.due then s.id else 9223372036854775807 end, s.cost
  from keyed s join job j on j.id = s.id join partition k on k.key = j.key;
$$;
