-- Stages jobs in the partitions that JavaScript worked out for them.
--
--   p_jobs   json array of { "id", "cost", "deadline", "partition": { "key", "shard", "context", "weight", "limits" } }. A
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
      partition_id = _partition_id(p_policy, j.key), cost = j.cost, error = null, failures = 0,
      due = s.run_at <= clock_timestamp(), sort_at = coalesce(j.deadline, s.sort_at)
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
