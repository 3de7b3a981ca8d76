-- The periodic repair pass. Each part is one function with a transaction of its own; in a healthy run all repair
-- nothing.

-- In-flight jobs that Graphile Worker no longer has, or that it will not run again, and those that wait there for a time to
-- come: for its own back-off, or because somebody rescheduled them. First they are marked: a job that just finished is released, or parked, by its own process within
-- moments. A job that is gone may still run: an earlier attempt, of a pool that was counted dead, completed it late. While
-- the pool lives that runs the later one, the slot is its. Returns how many are marked, and those marked for longer than
-- `p_grace`, as _release takes them, which the caller does: one that waits is parked until its time, unless it is a retry
-- and its policy's retries bypass the gates. The admission and attempt go along that were looked at: by the time of
-- the release the row may be another's.
--
--   p_only_marked   only those that a verb has marked, in which case nothing is marked here
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_in_flight(p_grace interval, p_only_marked boolean default false)
returns table (job_id bigint, admission bigint, attempt int, ok boolean, retry json, marked int) language sql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
  with missing as materialized (
    select f.job_id, f.admission, coalesce(f.attempt, 0)::int as attempt, f.missing_since,
      case when s.put_off and j.last_error is not null then false end as ok,
      case when s.put_off and (p.retries = 'restage' or j.attempts = 0) then json_build_object(
        'attempt', j.attempts, 'task', j.task_identifier, 'after', extract(epoch from j.run_at - clock_timestamp()),
        'priority', j.priority, 'maxAttempts', j.max_attempts) end as retry
    from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
    left join lateral (
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j on true
    cross join lateral (
      select j.locked_at is not null as running, j.attempts < j.max_attempts and j.run_at < 'infinity' as waits,
        j.locked_at is null and j.attempts < j.max_attempts and j.revision = f.revision
          and j.run_at > clock_timestamp() + interval '1 second'
          and j.run_at < 'infinity' as put_off
    ) s
    where (not p_only_marked or f.missing_since = '-infinity') and case when j.id is null then not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_workers w
        where w.pool_id = f.pool_id and w.stale_at > clock_timestamp())
      else s.put_off or not (s.running or s.waits) end
  ),
  -- rows that others hold are skipped: many wait for their release, and to meet it halfway was a deadlock
  marked as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = clock_timestamp()
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where not p_only_marked and x.job_id in (select m.job_id from missing m where m.missing_since is null)
      for update skip locked))
    returning 1
  ),
  back as (
    update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = null
    where f.job_id = any(array(
      select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
      where not p_only_marked and x.missing_since is not null and x.job_id not in (select m.job_id from missing m) for update skip locked))
    returning 1
  )
  select m.job_id, m.admission, m.attempt, m.ok, m.retry, (select count(*)::int from marked)
  from missing m where m.missing_since <= clock_timestamp() - p_grace
  union all
  select null, null, null, null, null, (select count(*)::int from marked) where exists (select from marked) or exists (select from back);
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
--
-- So are those that a clock that was ahead left with a time that nothing explains: after a failover to a server whose clock
-- is behind, nobody would look at a backlog until that time has come. A pass that looks sets every mark right.
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_partitions(p_now timestamptz)
returns table (woken int, unblocked int) language sql volatile
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
  with asleep as materialized (
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    where q.due_at > p_now + interval '1 second'
      and (exists (
          select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
          where s.partition_id = q.id and s.due and (q.due_at = 'infinity' or s.run_at <= p_now or not s.run_at_given))
        or exists (
          select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
          where s.partition_id = q.id and not s.due
            and coalesce(s.retry_at, s.run_at) < case when q.due_at = 'infinity' then q.due_at else p_now end))
      and not exists (select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.partition_id = q.id)
    order by q.id limit 10000 for no key update skip locked
  ),
  stuck as materialized (
    select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
    left join :DISPATCH_POLICY_SCHEMA._private_limiters l on l.id = q.blocked_on
    left join lateral :DISPATCH_POLICY_SCHEMA._limiters_now(q.policy_id, array[l.id], p_now, true) n on true
    -- it waits for its turn among others; if it has a job that comes due before, it looks by itself then, which may be long
    cross join lateral (select q.denied_until = 'infinity' or coalesce(l.breadth > 0, false) as shares) s
    left join lateral (
      -- when this job, or where others wait for the limiter too each, finds tokens enough
      select :DISPATCH_POLICY_SCHEMA._throttle_ready_at(n.tokens, n.rate, n.per, n.capacity, n.spent,
        case when s.shares then n.capacity else q.head_cost end, p_now) + interval '1 second' as by
      where l.kind = 'throttle'
    ) ready on true
    where q.denied_until > p_now + interval '1 second' and (
      -- an outcome that is not routed yet is no outcome that was lost
      (q.blocked_on is null and q.denied_until = 'infinity' and not exists (
          select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = q.probe_job_id)
        and not exists (select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.partition_id = q.id))
      or (q.blocked_on is null and q.denied_until < 'infinity' and q.denied_until > p_now + interval '2 seconds')
      or (q.blocked_on is not null and l.id is null)
      or (l.kind = 'throttle' and (l.refilled_at > p_now + interval '1 second'
        or case when s.shares
          then l.wake_at > ready.by or (l.wake_at is null and n.tokens >= 1 and n.rate > 0)
          else q.denied_until > ready.by end))
      -- each pass looks at the ahead bound by itself
      or (l.kind not in ('throttle', 'ahead') and (l.wake_at is null or l.wake_at > p_now + interval '1 second')
        and n.slots - case when n.reserved_for is null then 0 else 1 end > 0))
      and not exists (select from :DISPATCH_POLICY_SCHEMA._private_freed f
        where f.policy_id = q.policy_id and f.limiter_id = q.blocked_on)
    order by q.id limit 10000 for no key update of q skip locked
  ),
  woken as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set
      due_at = p_now, head_priority = -32768, head_run_at = '-infinity', head_id = 0,
      denied_until = case when s.id is null then q.denied_until else '-infinity' end,
      blocked_on = case when s.id is null then q.blocked_on end,
      probe_job_id = case when s.id is null then q.probe_job_id end
    from asleep a left join stuck s on s.id = a.id
    where q.id = a.id returning 1
  ),
  unblocked as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set
      denied_until = '-infinity', blocked_on = null, probe_job_id = null
    where q.id in (select s.id from stuck s) and q.id not in (select a.id from asleep a) returning 1
  )
  select (select count(*)::int from woken), (select count(*)::int from unblocked);
$$;

-- Times that a clock that was ahead left further ahead than anything explains, where no pass would look: lowered to now.
-- What others hold is skipped; the next sweep comes to it. (Pools are _sweep_workers', leases _lease's.)
create or replace function :DISPATCH_POLICY_SCHEMA._sweep_clock(p_now timestamptz) returns void language sql volatile
set search_path = pg_catalog, pg_temp
as $$
  -- in the line of those that wait, a mark of an hour ahead comes after all others for an hour
  update :DISPATCH_POLICY_SCHEMA._private_partitions q
  set fair_key = :DISPATCH_POLICY_SCHEMA._fair_key(q.decayed_admits, q.weight, p.half_life, p_now)
  from :DISPATCH_POLICY_SCHEMA._private_policies p
  where p.id = q.policy_id and q.id = any(array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_partitions x
    join :DISPATCH_POLICY_SCHEMA._private_policies y on y.id = x.policy_id
    where x.blocked_on is not null and x.decayed_at > p_now + interval '1 second' and x.fair_key
      > :DISPATCH_POLICY_SCHEMA._fair_key(x.decayed_admits, x.weight, y.half_life, p_now + interval '1 second')
    order by x.id for no key update of x skip locked));
  update :DISPATCH_POLICY_SCHEMA._private_partitions q set held_until = p_now
  where q.id = any(array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_partitions x
    join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = x.policy_id
    where x.stopped_by = 'breaker' and x.held_until < 'infinity'
      and x.held_until > p_now + make_interval(secs => p.breaker_cooldown) + interval '1 second' order by x.id
    for no key update of x skip locked));
  -- an override that began or ended by that clock, and does so again, would not be told of
  update :DISPATCH_POLICY_SCHEMA._private_overrides o
  set announce_at = case when o.from_at > p_now then o.from_at else o.until_at end
  where o.id = any(array(
    select x.id from :DISPATCH_POLICY_SCHEMA._private_overrides x
    where not x.taken_back and ((x.from_at > p_now and x.announce_at > x.from_at)
      or (x.from_at <= p_now and x.until_at > p_now and x.announce_at > x.until_at))
    order by x.id for update skip locked));
  update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set retry_at = p_now
  where s.ctid = any(array(
    select x.ctid from :DISPATCH_POLICY_SCHEMA._private_partitions q
    cross join lateral (   -- one look at the index for each partition
      select y.ctid, y.id from :DISPATCH_POLICY_SCHEMA._private_staged_jobs y
      where y.partition_id = q.id and not y.due order by coalesce(y.retry_at, y.run_at) limit 1
    ) e
    join :DISPATCH_POLICY_SCHEMA._private_staged_jobs x on x.id = e.id
    where q.due_at > p_now + interval '1 minute' and q.due_at < 'infinity' and x.retry_at < 'infinity'
      and x.retry_at > p_now + :DISPATCH_POLICY_SCHEMA._longest_aside(x.failures)
    for update of x skip locked));
  update :DISPATCH_POLICY_SCHEMA._private_keyless_jobs k set retry_at = p_now
  where k.staged_id = any(array(
    select x.staged_id from :DISPATCH_POLICY_SCHEMA._private_keyless_jobs x
    where x.retry_at > p_now + :DISPATCH_POLICY_SCHEMA._longest_aside(x.failures) and x.retry_at < 'infinity'
    for update skip locked));
  update :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f set missing_since = p_now
  where f.job_id = any(array(
    select x.job_id from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs x
    where x.missing_since > p_now + interval '1 second' for update skip locked));
$$;

-- How long a job that was refused so many times is set aside at most, and a minute.
create or replace function :DISPATCH_POLICY_SCHEMA._longest_aside(p_failures int) returns interval
language sql immutable as $$
  select make_interval(secs => least(power(2, least(p_failures, 12)), 3600) + 60);
$$;
