-- Partitions that nobody uses go, and those that sleep in vain wake.

-- Deletes partitions that nobody used for `p_inactive_after`, with their own limiters, if nothing is staged or in flight
-- and their buckets are full again. So a partition that comes back never starts with more than if it had stayed. It deletes
-- at most 1,000 a call.
create or replace function _collect_partitions(p_now timestamptz, p_inactive_after interval)
returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
set enable_seqscan = off   -- by statistics of an empty table, it read all staged jobs for each partition
as $$
declare
  v_ids uuid[];
  v_limiter_ids bigint[];
  v_overridden_ids int[] := array(select o.policy_id from overrides o);
begin
  -- The others by hash, because they have no index by partition: it would cost each job that is added or starts.
  with unused as materialized (
    select q.id from partitions q
    where q.due_at = 'infinity' and q.decayed_at < p_now - p_inactive_after
      and q.created_at < p_now - p_inactive_after
      and q.stopped_until = '-infinity'
      -- each half has an index
      and not exists (select from staged_jobs s where s.partition_id = q.id and s.due)
      and not exists (select from staged_jobs s where s.partition_id = q.id and not s.due)
    limit 1000 for update skip locked
  ),
  busy as materialized (
    select f.partition_id as id from in_flight_jobs f
    where (f.partition_id in (select n.id from unused n)) is true
    union all
    select a.partition_id from arrivals a
    where (a.partition_id in (select n.id from unused n)) is true
  )
  select coalesce(array_agg(n.id), '{}') into v_ids from unused n
  where (n.id in (select b.id from busy b)) is not true;
  v_limiter_ids := array(
    select l.id from limiters l
    where l.id = any(array(
        select unnest(q.limiter_ids) from partitions q where q.id = any(v_ids)))
      and l.breadth = 0 and not l.laned
    order by l.id for update);
  v_ids := array(
    select q.id from partitions q
    where q.id = any(v_ids) and not exists (
      select from limiters l
      where l.id = any(q.limiter_ids) and l.breadth = 0 and not l.laned
        and not _is_unused(l, p_now, p_inactive_after, l.policy_id = any(v_overridden_ids))));
  perform _drop_limiters(array(
    select l.id from limiters l
    where l.breadth = 0 and not l.laned and l.id = any(array(
      select unnest(q.limiter_ids) from partitions q where q.id = any(v_ids)))));
  perform _drop_partitions(v_ids);
  if v_ids <> '{}' then
    -- the leases of shards that have no partition any more
    delete from leases l
    where l.shard <> 'default'
      and not exists (
        select from partitions q
        join policies p on p.id = q.policy_id
        where p.name = l.policy and q.shard = l.shard)
      and not exists (
        select from arrivals a where a.policy = l.policy and a.shard = l.shard);
  end if;
  return cardinality(v_ids);
end
$$;

-- Deletes these partitions, which the caller has locked.
create or replace function _drop_partitions(p_ids uuid[]) returns void language plpgsql as $$
begin
  delete from partitions q where q.id = any(p_ids);
end
$$;

-- Lowers times of partitions that a clock left too far ahead, if no pass would correct them. It skips locked ones.
create or replace function _correct_partition_times(p_now timestamptz) returns void language plpgsql as $$
begin
  -- one whose time is an hour ahead would come after all others for an hour
  update partitions q
  set looked_at = p_now, fair_key = _fair_key(
    p, _decayed(q.decayed_admits, q.decayed_at, p.half_life, p_now), q.mean_work, q.weight, p_now)
  from policies p
  where p.id = q.policy_id and q.id = any(array(
    select x.id from partitions x
    where (x.blocked_on is not null or x.ready) and x.looked_at > p_now + interval '1 second'
    order by x.id limit 10000 for no key update skip locked));
  update partitions q set breaker_until = p_now
  where q.id = any(array(
    select x.id from partitions x
    join policies p on p.id = x.policy_id
    where x.breaker_until > '-infinity'
      and x.breaker_until > p_now + make_interval(secs => p.breaker_cooldown) + interval '1 second'
    order by x.id for no key update of x skip locked));
end
$$;

-- Makes partitions eligible that have staged work and no time to be claimed. It does the same for those that wait for a
-- limiter with room although no freed row says so. None of whom the router is about to decide sleeps or waits in vain.
--
-- It also corrects times that are further ahead than they can be, from a server whose clock was ahead. The next pass corrects the
-- partition's other times.
create or replace function _sweep_partitions(p_now timestamptz)
returns table (woken int, unblocked int) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
  with asleep as materialized (
    select q.id from partitions q
    where q.due_at > p_now + interval '1 second'
      and (exists (
          select from staged_jobs s
          where s.partition_id = q.id and s.due and (q.due_at = 'infinity' or s.run_at <= p_now or not s.run_at_given))
        or exists (
          select from staged_jobs s
          where s.partition_id = q.id and not s.due
            and coalesce(s.retry_at, s.run_at) < case when q.due_at = 'infinity' then q.due_at else p_now end))
      and not exists (select from arrivals a where a.partition_id = q.id)
    order by q.id limit 10000 for no key update skip locked
  ),
  stuck as materialized (
    select q.id from partitions q
    left join limiters l on l.id = q.blocked_on
    left join lateral _rooms_of(array[l.id], p_now, true) n on true
    -- It waits for its turn among others. If it has a job that is due earlier, it looks by itself then.
    cross join lateral (select q.denied_until = 'infinity' or coalesce(l.breadth > 0 or l.laned, false) as shares) s
    cross join lateral (select n.slots - case when n.reserved_for is null then 0 else n.reserved end as slots) free
    left join lateral (
      -- when there are enough tokens for this job, or for each waiter if others wait for the limiter as well
      select _throttle_ready_at(n.tokens, n.rate, n.per, n.capacity, n.spent, n.calendar,
        case when s.shares then n.capacity else q.head_cost end, p_now) + interval '1 second' as by
      where l.by_tokens
    ) ready on true
    where q.denied_until > p_now + interval '1 second'
      -- routing looks by itself
      and not (q.denied_reason is not distinct from 'strict_order' and (exists (
          select from _waiting_heads(array[q.id]) h where h.until_at >= q.denied_until)
        or exists (select from arrivals a where a.partition_id = q.id)))
      and (
      -- an outcome that is not routed yet is not lost
      (q.blocked_on is null and q.denied_until = 'infinity' and not exists (
          select from in_flight_jobs f
          where f.job_id = q.probe_job_id and (f.partition_id = q.id or (q.laned and f.partition_id = any(_siblings(q.id)))))
        and not exists (select from arrivals a where a.partition_id = q.id))
      or (q.blocked_on is null and q.denied_until < 'infinity' and q.denied_until > p_now + interval '2 seconds')
      or (q.blocked_on is not null and l.id is null)
      or (l.by_tokens and (l.refilled_at > p_now + interval '1 second'
        or case when s.shares
          then l.wake_at > ready.by or (l.wake_at is null and n.tokens >= least(n.capacity, 1) and n.rate > 0)
          else q.denied_until > ready.by end))
      -- each pass and each heartbeat checks the ahead bound: see _waits_in_vain
      or (not l.by_tokens and l.kind <> 'ahead' and (l.wake_at is null or l.wake_at > p_now + interval '1 second')
        and (l.fewest_pools < n.pools) is not true   -- nor those whose gate has new shares
        and free.slots > 0
        -- nor does it, or one before it, take more than are free
        and not exists (
          select from partitions b
          where b.blocked_on = l.id and _takes(b.limiter_ids, l.id) > free.slots
            and (b.id = q.id or _takes(b.limiter_ids, l.id) <= n.cap))))
      and not exists (select from freed f
        where (f.policy_id = q.policy_id or l.shared) and f.limiter_id = q.blocked_on)
      and (q.blocked_on is null or not exists (
          select from overrides o
          where o.policy_id in (q.policy_id, l.policy_id) and least(o.announce_at, o.announce_again_at) <= p_now)
        and not exists (
          select from overrides o
          where o.policy_id in (q.policy_id, l.policy_id) and o.to_announce <> '{}'))
    order by q.id limit 10000 for no key update of q skip locked
  ),
  woken as (
    update partitions q set
      due_at = p_now, head_priority = -32768, head_run_at = '-infinity', head_id = 0,
      denied_until = case when s.id is null then q.denied_until else '-infinity' end,
      blocked_on = case when s.id is null then q.blocked_on end,
      denied_reason = case when s.id is null then q.denied_reason end,
      probe_job_id = case when s.id is null then q.probe_job_id end
    from asleep a left join stuck s on s.id = a.id
    where q.id = a.id returning 1
  ),
  unblocked as (
    update partitions q set
      denied_until = '-infinity', blocked_on = null, denied_reason = null, probe_job_id = null
    where q.id in (select s.id from stuck s) and q.id not in (select a.id from asleep a) returning 1
  )
  select (select count(*)::int from woken), (select count(*)::int from unblocked);
$$;

-- How many jobs are staged in these rows of a partition, counted up to `p_most`.
create or replace function _pending_of(p_ids uuid[], p_most int)
returns int language plpgsql stable as $$
begin
  -- one index has the due jobs, another the others
  return least(p_most, (
    select count(*) from (
      select from staged_jobs s where s.partition_id = any(p_ids) and s.due limit p_most) d
  ) + (
    select count(*) from (
      select from staged_jobs s where s.partition_id = any(p_ids) and not s.due limit p_most) l
  ));
end
$$;
