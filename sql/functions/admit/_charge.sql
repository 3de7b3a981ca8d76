-- Charges what moved, and says for every claimed partition when it is looked at next. Counters, tokens, waiting and
-- decayed admits follow the jobs Graphile Worker returned, not those chosen. A job key that replaced a waiting,
-- already admitted job counts once. `p_forced`: tokens stop at zero. `saturated`: a cap over all of the policy is
-- reached, so nothing goes until a job ends ('workers': only since they have enough to do).
--
-- A partition that keeps due jobs waits for the first limiter, narrow scopes first, that has no room for its next job.
-- A partition that needs two saturated keyed scopes might never meet both free at once. So while it waits for a keyed
-- scope, it keeps one slot of each keyed scope before that one. Each limiter has one such slot. They are always held in
-- the same order, so that no two partitions wait for each other.
--
-- Without an end, one job that ran for hours in the further scope left the nearer one idle for hours. So the partition
-- keeps the slot for as long as it has waited, and for one second at least. Then others may use it until the partition
-- is looked at again. The wait does not count from the time of its job, which may be of long ago. This way a slot is
-- idle half of the time at most, and a longer wait is matched by a longer hold.
--
-- One plan, made once, holds for one job and for 5,000 (see _allocate). It has hash joins only. So that they read no
-- whole table, every table's ids are named beside the join.
create or replace function :DISPATCH_POLICY_SCHEMA._charge(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[],
  p_limiters :DISPATCH_POLICY_SCHEMA._private_limiter_now[],
  p_candidates :DISPATCH_POLICY_SCHEMA._private_candidate[],
  p_admissions :DISPATCH_POLICY_SCHEMA._private_admission[],
  p_now timestamptz, p_forced boolean, p_tick bigint
) returns table (denied jsonb, saturated text) language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_limiter_ids bigint[] := array(select l.id from unnest(p_limiters) l);
  v_takings :DISPATCH_POLICY_SCHEMA._private_taking[] := :DISPATCH_POLICY_SCHEMA._put_in_flight(
    p_policy, p_partition_ids, p_limiters, p_candidates, p_admissions, p_now);
begin
  return query
  with claimed as materialized (
    select p.id, p.limiter_ids, p.weight, p.due_at, p.admitted_at, p.probing, p.probe_job_id, p.mean_work, p.waiting_since,
      :DISPATCH_POLICY_SCHEMA._decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now) as decayed
    from :DISPATCH_POLICY_SCHEMA._private_partitions p where p.id = any(p_partition_ids)
  ),
  per_limiter as materialized (
    select u.id, sum(n.jobs)::int as jobs, sum(n.cost) as cost
    from unnest(v_takings) n join claimed p on p.id = n.partition_id
    cross join unnest(p.limiter_ids) u (id) where n.jobs > 0 group by u.id
  ),
  lim as materialized (
    select l.*,
      l.slots - coalesce(n.jobs, 0) as slots_left,
      t.tokens_left,
      case when l.spent is not null
        then :DISPATCH_POLICY_SCHEMA._window_spend(l.spent, l.per, l.remembered, l.tokens - t.tokens_left, p_now) end
        as spent_then,
      coalesce(n.jobs, 0) as jobs
    from unnest(p_limiters) l
    left join per_limiter n on n.id = l.id
    cross join lateral (
      -- a cap has no tokens, which is null: greatest and least would make a 0 of it, and the cap would look full
      select case when p_forced and l.tokens is not null then greatest(l.tokens - coalesce(n.cost, 0), least(l.tokens, 0))
        else l.tokens - coalesce(n.cost, 0) end as tokens_left
    ) t
  ),
  head as materialized (
    select distinct on (c.partition_id) c.partition_id, c.staged_id, c.priority, c.run_at, c.cost, c.chosen
    from unnest(p_candidates) c
    where (c.staged_id in (select a.staged_id from unnest(p_admissions) a)) is not true
    order by c.partition_id, c.pos
  ),
  part as materialized (
    select p.id, p.limiter_ids, p.weight, p.due_at, p.admitted_at, p.waiting_since,
      case when p.probing then coalesce(p.probe_job_id, n.first_job_id) end as probe_job_id,
      p.decayed + coalesce(n.admitted, 0) * coalesce(:DISPATCH_POLICY_SCHEMA._work_of(p_policy, p.mean_work), 1)
        as decayed,
      coalesce(n.admitted, 0) as admitted,
      h.staged_id as head_id, h.priority as head_priority, h.run_at as head_run_at, h.cost as head_cost,
      h.chosen as head_skipped,
      case when h.staged_id is null then (
        select min(coalesce(s.retry_at, s.run_at)) from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
        where s.partition_id = p.id and not s.due
      ) end as next_run_at
    from claimed p
    left join unnest(v_takings) n on n.partition_id = p.id
    left join head h on h.partition_id = p.id
  ),
  -- the limiters that have no room for a partition's next job, and when each might
  lacking as materialized (
    select p.id as partition_id, u.ord, l.id, l.breadth, l.kind, l.tokens is not null as by_tokens,
      case when l.tokens is not null then :DISPATCH_POLICY_SCHEMA._throttle_ready_at(
        l.tokens_left, l.rate, l.per, l.capacity, l.spent_then, p.head_cost, p_now)
        -- nobody tells when Graphile Worker has recorded an end
        when l.ending > 0 then p_now + interval '10 milliseconds' end as ready_at,
      case when l.id is null then 'concurrency_full'
        when l.tokens is not null then case when l.rate <= 0 then 'rate_zero' else 'throttle_empty' end
        when l.kind = 'ahead' then 'ahead_full'
        when l.cap = 0 then 'max_zero'
        else l.kind || '_full' end as reason
    from part p
    cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
    left join lim l on l.id = u.id
    where p.head_id is not null and (
      l.id is null
      or :DISPATCH_POLICY_SCHEMA._lacks_room(
        l.slots_left, l.reserved_for, l.tokens_left, l.capacity, l.rate, p.id, p.head_cost)
    )
  ),
  -- the one it waits for, and for a bucket of its own the time by which all its own buckets are ready
  waits as materialized (
    select distinct on (k.partition_id) k.partition_id, k.id, k.breadth, k.kind, k.by_tokens, k.ord, k.reason,
      first_value(k.ready_at) over own as own_ready_at,
      first_value(k.id) over own as own_id,
      first_value(k.reason) over (
        partition by k.partition_id order by k.ready_at desc nulls first, k.ord) as last_reason
    from lacking k
    window own as (partition by k.partition_id order by k.breadth, k.ready_at desc nulls last, k.ord)
    order by k.partition_id, k.ord
  ),
  state as materialized (
    select p.*, w.kind, w.by_tokens, w.breadth, w.ord, w.reason as wait_reason,
      case when p.head_id is null then null
        when p.probe_job_id is not null then 'breaker_open'
        when w.partition_id is not null then w.last_reason
        when p.head_skipped is true then null
        when p.admitted >= (p_policy).batch_size then 'batch'
        else 'tick_budget' end as reason,
      case when p.head_id is null then null
        when p.probe_job_id is not null then 'infinity'   -- until the release of the probe is routed
        when w.partition_id is null and p.head_skipped is true then p_now + interval '50 milliseconds'
        when w.partition_id is null then null
        when w.id is null then p_now + interval '1 second'
        when w.by_tokens then least(case when w.breadth = 0 then w.own_ready_at else 'infinity' end, (
          -- a job that comes before this one may cost less, and is not due yet: looked at then, or after the next 20
          select min(greatest(x.at, p_now + interval '50 milliseconds')) from (
            select y.at, y.priority, y.run_at, y.id, row_number() over () as place from (
              select coalesce(s.retry_at, s.run_at) as at, s.priority, s.run_at, s.id
              from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
              where s.partition_id = p.id and not s.due order by coalesce(s.retry_at, s.run_at) limit 20
            ) y
          ) x
          where (x.priority, x.run_at, x.id) < (p.head_priority, p.head_run_at, p.head_id) or x.place = 20))
        else 'infinity' end as denied_until,
      -- also on a bucket of its own, whose time is known: other numbers change it
      case when p.head_id is null or p.probe_job_id is not null then null
        when w.breadth = 0 and w.by_tokens then w.own_id
        else w.id end as blocked_on
    from part p left join waits w on w.partition_id = p.id
  ),
  -- the keyed slots kept for a partition that waits for a further keyed scope
  reserve as materialized (
    select distinct on (l.id) l.id, s.id as partition_id,
      p_now + greatest(case when s.admitted = 0 then p_now - s.waiting_since end, interval '1 second') as until
    from state s
    cross join lateral unnest(s.limiter_ids) with ordinality u (id, ord)
    join lim l on l.id = u.id
    where s.breadth = 1 and s.probe_job_id is null and not s.by_tokens and s.wait_reason <> 'max_zero' and u.ord < s.ord
      and l.breadth = 1 and l.slots_left = 1
      and (l.reserved_for is null or l.reserved_for = s.id or l.reserved_for = any(p_partition_ids))
    order by l.id, (l.reserved_for = s.id) desc nulls last, (s.decayed + 1) / s.weight, s.id
  ),
  charged as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set
      tokens = case when l.by_tokens then x.tokens_left else l.tokens end,
      spent = coalesce(x.spent_then, l.spent),
      refilled_at = case when l.by_tokens then
        :DISPATCH_POLICY_SCHEMA._throttle_mark(l.refilled_at, p_now) else l.refilled_at end,
      in_flight = l.in_flight + case when l.by_tokens then 0 else x.jobs end,
      wake_at = least(l.wake_at, w.wake_at, k.until),
      reserved_for = r.partition_id,
      reserved_until = k.until,
      sampled_at = case when x.measured is not null then p_now else l.sampled_at end,
      sampled_released = case when x.measured is not null then l.released else l.sampled_released end,
      finished_per_second = coalesce(x.measured, l.finished_per_second)
    from lim x
    left join reserve r on r.id = x.id
    cross join lateral (
      select case when x.reserved_for = r.partition_id then x.reserved_until else r.until end as until
    ) k
    left join (
      select k.id, min(k.ready_at) as wake_at from lacking k where k.breadth > 0 and k.ready_at is not null group by k.id
    ) w on w.id = x.id
    where l.id = x.id and l.id = any(v_limiter_ids) and (
      x.jobs > 0 or x.measured is not null
      or w.id is not null or l.refilled_at > p_now + interval '1 second'
      or (l.reserved_for is distinct from r.partition_id
        and (l.reserved_for is null or l.reserved_for = any(p_partition_ids) or x.reserved_for is null)))
    returning l.id
  ),
  -- a reservation given up without being used makes room for whoever waits there
  given_up as (
    insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
    select (p_policy).id, x.id from lim x left join reserve r on r.id = x.id
    where x.reserved_for = any(p_partition_ids) and r.partition_id is distinct from x.reserved_for
      and x.slots_left > 0
  ),
  marked as (
    update :DISPATCH_POLICY_SCHEMA._private_partitions p set
      decayed_admits = s.decayed,
      decayed_at = :DISPATCH_POLICY_SCHEMA._throttle_mark(p.decayed_at, p_now),
      fair_key = :DISPATCH_POLICY_SCHEMA._fair_key(s.decayed, s.weight, (p_policy).half_life, p_now),
      admitted_total = p.admitted_total + s.admitted,
      admitted_at = case when s.admitted > 0 then p_now else p.admitted_at end,
      due_at = case
        -- due, and promoted by nobody: another session holds the row
        when s.head_id is null and s.admitted = 0 and s.next_run_at <= p_now then p_now + interval '50 milliseconds'
        when s.head_id is null then coalesce(s.next_run_at, 'infinity')
        when s.reason = 'tick_budget' then s.due_at
        -- by a time ahead it would not be looked at again before that time has come
        else least(p_now, clock_timestamp()) end,
      head_priority = coalesce(s.head_priority, 32767),
      head_run_at = coalesce(s.head_run_at, 'infinity'),
      head_id = coalesce(s.head_id, 9223372036854775807),
      head_cost = coalesce(s.head_cost, 1),
      -- a paused or held partition waits for its operator, for no limiter
      denied_until = case when p.held_until <= p_now and p.paused_until <= p_now
        then coalesce(s.denied_until, '-infinity') else '-infinity' end,
      blocked_on = case when p.held_until <= p_now and p.paused_until <= p_now then s.blocked_on end,
      held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
      paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end,
      denied_reason = s.reason,
      waiting_since = case when s.head_id is null then null when s.admitted > 0 then p_now
        else least(s.waiting_since, p_now) end,
      probe_job_id = s.probe_job_id,
      visited = p_tick
    from state s where p.id = s.id and p.id = any(p_partition_ids)
    returning p.id
  )
  select
    (select coalesce(jsonb_object_agg(d.reason, d.n), '{}') from (
      select s.reason, count(*) as n from state s where s.reason is not null group by s.reason
    ) d),
    (select case when bool_and(s.kind = 'ahead') and bool_and(a.is_enough) then 'workers' else 'gate' end
      from state s
      left join (
        select :DISPATCH_POLICY_SCHEMA._is_enough(l.in_flight + l.jobs, l.finished_per_second) as is_enough
        from lim l where l.id = (p_policy).ahead_limiter_id
      ) a on true
      where s.breadth >= 2 and not s.by_tokens and s.blocked_on is not null having count(*) > 0);
end
$$;
