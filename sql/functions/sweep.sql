-- The periodic repair pass. Each part is one function with a transaction of its own; in a healthy run all repair
-- nothing.

-- In-flight jobs that Graphile Worker no longer has, or that it will not run again, and those that failed and wait for its
-- own back-off. First they are marked: a job that just finished is released, or parked, by its own process within
-- moments. A job that is gone may still run: an earlier attempt, of a pool that was counted dead, completed it late. While
-- the pool lives that runs the later one, the slot is its. Returns how many are marked, and those marked for longer than
-- `p_grace`, as _release takes them, which the caller does: one that failed is parked for what is left of its back-off,
-- where its policy's retries pass the gates again.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_in_flight(p_grace interval)
returns table (job_id bigint, ok boolean, retry json, marked int) language sql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
  with missing as materialized (
    select f.job_id, f.missing_since, not coalesce(s.failed, false) as ok,
      case when s.failed and p.retries = 'restage' then json_build_object(
        'attempt', j.attempts, 'task', j.task_identifier, 'after', extract(epoch from j.run_at - clock_timestamp()),
        'priority', j.priority, 'maxAttempts', j.max_attempts) end as retry
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
    left join lateral (
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j on true
    cross join lateral (
      select j.locked_at is not null as running, j.attempts < j.max_attempts and j.run_at < 'infinity' as waits,
        j.locked_at is null and j.attempts between 1 and j.max_attempts - 1 and j.last_error is not null
          and j.run_at > clock_timestamp() and j.run_at < 'infinity' as failed
    ) s
    where case when j.id is null then not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_workers w
        where w.pool_id = f.pool_id and w.stale_at > clock_timestamp())
      else s.failed or not (s.running or s.waits) end
  ),
  -- rows that others hold are skipped: many wait for their release, and to meet it halfway was a deadlock
  marked as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = clock_timestamp()
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where x.job_id in (select m.job_id from missing m where m.missing_since is null) for update skip locked))
    returning 1
  ),
  back as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = null
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where x.missing_since is not null and x.job_id not in (select m.job_id from missing m) for update skip locked))
    returning 1
  )
  select m.job_id, m.ok, m.retry, (select count(*)::int from marked)
  from missing m where m.missing_since <= clock_timestamp() - p_grace
  union all
  select null, null, null, (select count(*)::int from marked) where exists (select from marked) or exists (select from back);
$$;

-- Counters of limiters that differ from the in-flight rows that hold them: counted again under their locks.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_counters() returns int language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_ids bigint[];
  v_repaired int;
begin
  v_ids := array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    left join (
      select u.id, count(*) as jobs from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
      cross join unnest(f.limiter_ids) u (id) group by u.id
    ) n on n.id = l.id
    where l.in_flight <> coalesce(n.jobs, 0));
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l
  where l.id = any(v_ids) order by l.id for no key update;
  with truth as (
    select v.id, (
      select count(*)::int from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.limiter_ids @> array[v.id]
    ) as jobs from unnest(v_ids) v (id)
  ),
  repaired as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set in_flight = t.jobs
    from truth t where l.id = t.id and l.in_flight <> t.jobs returning l.policy_id, l.id
  ),
  noted as (
    insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id) select r.policy_id, r.id from repaired r
  )
  select count(*) into v_repaired from repaired;
  return v_repaired;
end
$$;

-- Partitions asleep over staged work, and partitions that wait for a limiter that has room and of which no note says
-- so, are made eligible. Work that is about to be routed is not asleep.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_partitions(p_now timestamptz)
returns table (woken int, unblocked int) language sql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
  with asleep as materialized (
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    where q.due_at = 'infinity'
      and exists (
        select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
        where s.partition_id = q.id and (s.due or coalesce(s.retry_at, s.run_at) < 'infinity'))
      and not exists (select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.partition_id = q.id)
    order by q.id limit 10000 for no key update skip locked
  ),
  stuck as materialized (
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    left join :DISPATCH_POLICY_SCHEMA._private_limiters l on l.id = q.blocked_on
    left join lateral :DISPATCH_POLICY_SCHEMA._limiters_now(q.policy_id, array[l.id], p_now, true) n on true
    where q.denied_until = 'infinity' and (
      -- an outcome that is not routed yet is no outcome that was lost
      (q.blocked_on is null and not exists (
          select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = q.probe_job_id)
        and not exists (select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.partition_id = q.id))
      or (q.blocked_on is not null and l.id is null)
      or (l.kind = 'throttle' and l.wake_at is null and n.tokens >= 1 and n.rate > 0)
      -- each pass looks at the ahead bound by itself
      or (l.kind not in ('throttle', 'ahead') and l.wake_at is null and n.slots - case when n.reserved_for is null then 0 else 1 end > 0))
      and not exists (select from :DISPATCH_POLICY_SCHEMA._private_freed f
        where f.policy_id = q.policy_id and f.limiter_id = q.blocked_on)
    order by q.id limit 10000 for no key update of q skip locked
  ),
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set
      due_at = p_now, head_priority = -32768, head_run_at = '-infinity', head_id = 0
    where q.id in (select a.id from asleep a) returning 1
  ),
  unblocked as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set
      denied_until = '-infinity', blocked_on = null, probe_job_id = null
    where q.id in (select s.id from stuck s) and q.id not in (select a.id from asleep a) returning 1
  )
  select (select count(*)::int from woken), (select count(*)::int from unblocked);
$$;
