-- Looks at what is declared: the policy, its shards, its definitions and the pools that have it.

-- The policy of this name. Raises if nobody has declared it.
create or replace function _policy(p_policy text) returns policies language plpgsql stable as $$
declare
  v_policy policies;
begin
  select * into v_policy from policies p where p.name = p_policy;
  if v_policy.id is null then
    perform _unknown_policy(p_policy);
  end if;
  return v_policy;
end
$$;

-- The policy of this name, which has jobs to stop or to admit. Raises if it is a shared limit.
create or replace function _policy_with_jobs(p_policy text) returns policies language plpgsql stable as $$
declare
  v_policy policies := _policy(p_policy);
begin
  if v_policy.shared then
    raise exception 'dispatch_policy: % is a shared limit, expected a policy: a limit has no jobs of its own. To stop its jobs, set its max or rate to 0',
      quote_literal(p_policy) using errcode = 'DPARG';
  end if;
  return v_policy;
end
$$;

-- The policy whose limiters a gate of this policy has: its own, or the shared limit of that name. Raises as _policy.
create or replace function _policy_of_gate(p_policy text, p_gate text) returns policies language plpgsql stable as $$
declare
  v_policy policies := _policy(p_policy);
begin
  if exists (
    select from jsonb_array_elements(v_policy.definition -> 'gates') g where g.value ->> 'name' = p_gate and g.value ? 'shared') then
    return _policy(p_gate);
  end if;
  return v_policy;
end
$$;

-- Raises for a policy that nobody has declared. The message names those that were declared.
create or replace function _unknown_policy(p_policy text) returns void language plpgsql as $$
begin
  raise exception 'dispatch_policy: unknown policy %; known: %', coalesce(quote_literal(p_policy), 'null'),
      coalesce((select string_agg(quote_literal(p.name), ', ' order by p.name) from policies p), 'none')
    using errcode = 'DPPOL';
end
$$;

-- The shards of a policy that have something to wait for, by walks over the indexes that touch one entry each.
create or replace function _shards(p_policy_id int) returns text[] language plpgsql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  return (
  with recursive timed as (
    (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' and not p.ready order by p.shard limit 1)
    union all
    select (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.eligible_at < 'infinity' and not p.ready and p.shard > t.shard
      order by p.shard limit 1)
    from timed t where t.shard is not null
  ),
  ready as (
    (select p.shard from partitions p where p.policy_id = p_policy_id and p.ready order by p.shard limit 1)
    union all
    select (select p.shard from partitions p
      where p.policy_id = p_policy_id and p.ready and p.shard > r.shard order by p.shard limit 1)
    from ready r where r.shard is not null
  )
  select coalesce(array_agg(s.shard), '{}')
  from (select t.shard from timed t union select r.shard from ready r) s where s.shard is not null);
end
$$;

-- Which limits count more, those of a job whose process has this version of a policy, or others: the higher number. A job of
-- the version in force changes what is there. Limits of any other version count only where there are none of it.
create or replace function _generation_of(p_policy policies, p_version int) returns int language sql immutable as $$
  select case when p_version = (p_policy).version then (p_policy).generation else -1 end;
$$;

-- Whether a worker pool that has the definition in force runs a tick loop of the policy. It works out partition and limits of
-- jobs that a process of another version brings. Without one nobody might do so, and the jobs would wait in vain.
--
-- A leader whose machine is busy renews its lease too late. For that moment nobody else's limits are believed: within 30
-- seconds, the longest that a lease lasts, it is back, or another pool has the lease. One that steps down says so.
create or replace function _leader_keys(p_policy policies) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from leases l
    join workers w on w.pool_id = l.holder
    where l.policy = (p_policy).name and not w.ended and l.expires_at > clock_timestamp() - interval '30 seconds'
      and w.definitions #>> array[(p_policy).name, 'hash'] = (p_policy).definition_hash);
end
$$;

-- Whether a task is one of this policy's.
create or replace function _has_task(p_policy text, p_task text) returns boolean language plpgsql stable as $$
begin
  return exists (
    select from policy_tasks t join policies p on p.id = t.policy_id
    where t.task_identifier = p_task and p.name = p_policy);
end
$$;

-- Whether a task is not one of this policy's.
create or replace function _is_of_another(p_policy policies, p_task text) returns boolean language plpgsql stable as $$
begin
  return not exists (select from policy_tasks t where t.policy_id = (p_policy).id and t.task_identifier = p_task);
end
$$;

-- The policy and the key of a partition. If it is not routed yet, one of its other arrivals has them. If it does not exist
-- any more, there is no row. PostgreSQL inlines this query, so thousands of partitions are looked up in one plan.
create or replace function _policy_and_key_of(p_partition_id uuid)
returns table (policy text, key text) language sql stable as $$
  select coalesce(p.name, a.policy), coalesce(q.key, a.key)
  from (select p_partition_id as id) u
  left join partitions q on q.id = u.id
  left join policies p on p.id = q.policy_id
  left join lateral (
    select x.policy, x.key from arrivals x
    where q.id is null and x.partition_id = u.id limit 1
  ) a on true
  where coalesce(q.key, a.key) is not null;
$$;

-- The staged jobs of a policy, or all (null). A job that was just staged has only its partition's id, and one without a key
-- not even that. The policy's tasks do not tell, because its declaration may have lost one since. PostgreSQL inlines this
-- query, so a caller that wants a few jobs reads only a few.
create or replace function _staged_of(p_policy text) returns setof staged_jobs language sql stable as $$
  select s.* from staged_jobs s
  where p_policy is null
    or s.partition_id in (
      select q.id from partitions q join policies p on p.id = q.policy_id where p.name = p_policy)
    or s.partition_id in (select a.partition_id from arrivals a where a.policy = p_policy)
    or s.id in (select k.staged_id from keyless_jobs k where k.policy = p_policy);
$$;

-- How many live worker pools have a task of this policy and take jobs. Each has its share of a gate with `perWorker`.
create or replace function _live_pools(p_policy_id int) returns int language plpgsql stable as $$
begin
  return (
    select count(*)::int from workers w
    where w.stale_at > clock_timestamp() and w.slots > 0 and w.tasks && (
      select array_agg(x.task_identifier) from policy_tasks x where x.policy_id = p_policy_id));
end
$$;

-- Whether a worker pool runs the tick loop of this shard. A lease that runs for longer than any lease does is void, see _lease.
create or replace function _is_led(p_policy text, p_shard text, p_now timestamptz) returns boolean
language plpgsql stable as $$
begin
  return exists (
    select from leases l
    where l.policy = p_policy and l.shard = p_shard and l.expires_at > p_now and l.expires_at <= p_now + interval '30 seconds');
end
$$;

-- How many jobs the shares of all worker pools allow. Before a pool has told of itself, one share is there: without it no
-- job would ever go.
create or replace function _shares_in_all(share int, pools int) returns int language sql immutable as $$
  select least(share::bigint * greatest(pools, 1), 2147483647)::int;
$$;

-- The partition of an in-flight job, and its scope key under a gate if one is named. Null: the gate counts over the policy.
create or replace function _scope_of(p_job_id bigint, p_gate text)
returns table (policy text, partition text, scope_key text) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select p.name, q.key, case when l.breadth < 2 then l.scope_key end
  from in_flight_jobs f
  join policies p on p.id = f.policy_id
  join partitions q on q.id = f.partition_id
  left join limiters l on l.id = any(q.limiter_ids) and l.gate = p_gate
  where f.job_id = p_job_id;
$$;
