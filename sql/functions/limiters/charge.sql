-- A pass writes what it took from limiters.

-- Charges the limiters for what a pass put in flight, sets when passes look at their waiters, and reserves slots.
--
-- A partition that needs two full keyed scopes might never find room in both at once. So while it waits for a keyed scope,
-- one slot of each keyed scope before that one is reserved for it, or as many as its next job takes. Each limiter has one
-- reservation, and only once a further such job would leave too few. The order is the same for all, so that no two partitions wait
-- for each other.
--
-- Without an end, one job that ran for hours in the further scope left the nearer one idle for hours. So the reservation
-- lasts as long as the partition has waited, and at least one second. Then others may use the slot until the partition is
-- looked at again. The wait does not count from the time of its job, which may be long ago. So a slot is idle half of the
-- time at most, and a longer wait gets a longer reservation.
--
--   p_elsewhere   a job that went may wait in Graphile Worker for something else than a slot
create or replace function _charge_limiters(
  p_policy_id int, p_partition_ids uuid[], p_left room_after[],
  p_verdicts verdict[], p_now timestamptz, p_elsewhere boolean
) returns void language plpgsql volatile as $$   -- planned as _charge
declare
  v_limiter_ids bigint[] := array(select (x.before).id from unnest(p_left) x);
  -- only slots of keyed limiters are reserved; one that was keyed before may have a reservation still
  v_has_keyed boolean := exists (
    select from unnest(p_left) x where (x.before).breadth = 1 or (x.before).reserved_for is not null);
  v_reserved bigint[];
  v_owners uuid[];
  v_untils timestamptz[];
begin
  if v_has_keyed then
    select array_agg(r.id), array_agg(r.partition_id), array_agg(r.until) into v_reserved, v_owners, v_untils
    from (
      select distinct on (l.id) l.id, v.partition_id,
        p_now + greatest(case when v.admitted = 0 then p_now - v.waiting_since end, interval '1 second') as until
      from unnest(p_verdicts) v
      cross join lateral unnest(v.limiter_ids) with ordinality u (id, ord)
      join (select (x.before).id, (x.before).breadth, (x.before).reserved_for, x.slots from unnest(p_left) x) l on l.id = u.id
      cross join lateral (select _takes(v.limiter_ids, u.id) as takes) k
      where v.breadth = 1 and v.probe_job_id is null and not v.by_tokens and v.reason not in ('max_zero', 'cost_over_max')
        and u.ord < v.ord and l.breadth = 1 and l.slots >= k.takes and l.slots < 2 * k.takes
        and (l.reserved_for is null or l.reserved_for = v.partition_id or l.reserved_for = any(p_partition_ids))
      order by l.id, (l.reserved_for = v.partition_id) desc nulls last, (v.decayed + 1) / v.weight, v.partition_id
    ) r;
  end if;
  update limiters l set
    tokens = case when l.by_tokens then x.tokens_left + x.kept else l.tokens end,
    spent = coalesce(x.spent_then, l.spent),
    refilled_at = case when l.by_tokens then
      _throttle_filled_at(l.refilled_at, p_now) else l.refilled_at end,
    in_flight = l.in_flight + case when l.by_tokens then 0 else x.jobs end,
    admitted = l.admitted + x.jobs,
    wake_at = least(l.wake_at, w.wake_at, k.until, case when w.limiter_id is not null then x.rises_at end),
    fewest_pools = case when w.limiter_id is not null then least(l.fewest_pools, x.pools) else l.fewest_pools end,
    reserved_for = k.partition_id,
    reserved_until = k.until,
    sampled_at = case when x.measured is not null then p_now else l.sampled_at end,
    sampled_released = case when x.measured is not null then l.released else l.sampled_released end,
    finished_per_second = coalesce(x.measured, l.finished_per_second),
    elsewhere_until = case when p_elsewhere and l.kind = 'ahead' then p_now + interval '1 day' else l.elsewhere_until end
  from (
    select (x.before).id, (x.before).tokens, (x.before).shadow_tokens, (x.before).measured, (x.before).reserved_for,
      (x.before).reserved_until, (x.before).pools, (x.before).rises_at, coalesce((x.before).kept, 0) as kept,
      x.jobs, x.tokens as tokens_left, x.spent as spent_then
    from unnest(p_left) x
  ) x
  left join unnest(v_reserved, v_owners, v_untils) r (id, partition_id, until) on r.id = x.id
  -- one of a partition outside the claim stays, whoever else was admitted
  cross join lateral (
    select case when x.reserved_for <> all (p_partition_ids) then x.reserved_for else r.partition_id end as partition_id
  ) o
  cross join lateral (
    select o.partition_id, case when x.reserved_for = o.partition_id then x.reserved_until else r.until end as until
  ) k
  left join (
    -- only of those who wait for it: who lacks room here too, but waits for a narrower one, asks here when that one calls
    select v.blocked_on as limiter_id, min(v.ready_at) filter (where v.breadth > 0) as wake_at
    from unnest(p_verdicts) v group by v.blocked_on
  ) w on w.limiter_id = x.id
  where l.id = x.id and l.id = any(v_limiter_ids) and (
    x.jobs > 0 or x.tokens_left < coalesce(x.tokens, x.shadow_tokens) or x.measured is not null
    or w.wake_at is not null or (w.limiter_id is not null and x.pools < coalesce(l.fewest_pools, 2147483647))
    -- a time that is known to bring room: whoever looked before may have found nobody to wait for it
    or (w.limiter_id is not null and least(k.until, x.rises_at) < coalesce(l.wake_at, 'infinity'))
    or l.refilled_at > p_now + interval '1 second'
    or (l.reserved_for is distinct from r.partition_id
      and (l.reserved_for is null or l.reserved_for = any(p_partition_ids) or x.reserved_for is null)));
  if v_has_keyed then
    -- a reservation that ends unused makes room for those who wait there
    insert into freed (policy_id, limiter_id)
    select p_policy_id, (x.before).id from unnest(p_left) x
    left join unnest(v_reserved, v_owners) r (id, partition_id) on r.id = (x.before).id
    where (x.before).reserved_for = any(p_partition_ids) and r.partition_id is distinct from (x.before).reserved_for
      and x.slots > 0;
  end if;
end
$$;

-- Writes limiters that the caller has locked: what went since they were read, and when passes look at their waiters.
--
--   p_ids       theirs, in the same places
--   p_rooms     there what they have left; null: nothing went
--   p_changed   the first so many limiters are written in any case: the caller has freed slots of them in memory
create or replace function _write_limiters(
  p_ids bigint[], p_limiters limiters[], p_rooms room_before[], p_wakes timestamptz[], p_changed int, p_waits_elsewhere boolean,
  p_now timestamptz
) returns void language plpgsql as $$
begin
  update limiters l set
    tokens = coalesce(r.tokens, l.tokens),
    spent = coalesce(r.spent, l.spent),
    refilled_at = case when r.tokens is null then l.refilled_at else _throttle_filled_at(l.refilled_at, p_now) end,
    in_flight = b.in_flight + case when l.by_tokens then 0 else x.admits end,
    admitted = l.admitted + x.admits,
    released = b.released, ending = b.ending, durations = b.durations,
    sampled_at = case when r.measured is not null then p_now else l.sampled_at end,
    sampled_released = case when r.measured is not null then b.released else l.sampled_released end,
    finished_per_second = coalesce(r.measured, l.finished_per_second),
    wake_at = least(l.wake_at, p_wakes[b.ordinality]),
    elsewhere_until = case when p_waits_elsewhere and l.kind = 'ahead' then p_now + interval '1 day' else l.elsewhere_until end
  from unnest(p_limiters) with ordinality b
  left join unnest(p_rooms) r on r.id = b.id
  cross join lateral (select coalesce(r.admitted - b.admitted, 0) as admits) x
  where l.id = b.id and l.id = any(p_ids) and (b.ordinality <= p_changed or x.admits > 0 or p_wakes[b.ordinality] is not null or r.measured is not null
    or b.refilled_at > p_now + interval '1 second');   -- its clock was wrong: the mark moves back
end
$$;

-- Lets a job of a long task go only if one of the policy's worker slots is free for it: hundreds of short jobs may be ahead of
-- the worker slots, a tenth as many long ones would keep others waiting for minutes. A task is long if its jobs run for longer
-- than the time that the policy is ahead by. A task of which no job has ended yet may be long.
--
-- If the long job stays, so do the jobs that rank behind it, or it would never go. The ahead bound then has only as many slots as
-- jobs go, so the partitions of the jobs that stay wait for it. `long_waits_until` keeps the passes of other claims and shards
-- from admitting ahead for a moment.
create or replace function _stop_at_long_jobs(
  p_policy policies, p_now timestamptz,
  inout candidates candidate[],
  inout limiters room_before[]
) language plpgsql volatile as $$
declare
  v_short_tasks text[];
  v_free int;
  v_long bigint[];
  v_going bigint[];
begin
  select l.short_tasks, l.free into v_short_tasks, v_free
  from _slots_for_long_jobs(p_policy, p_now) l;
  if not found then
    return;
  end if;
  v_long := array(   -- by ctid, as _add_admitted
    select s.id from staged_jobs s
    where s.ctid = any(array(select c.ct from unnest(candidates) c where c.chosen))
      and s.task_identifier <> all (v_short_tasks));
  if v_long = '{}' then
    return;
  end if;
  v_going := array(
    with ranked as materialized (
      select c.staged_id, c.staged_id in (select unnest(v_long)) as is_long,
        row_number() over (order by c.vt, c.priority, c.run_at, c.staged_id) as rank
      from unnest(candidates) c where c.chosen
    )
    select r.staged_id from ranked r
    where r.rank < all (select s.rank from ranked s where s.is_long and s.rank > v_free));
  if cardinality(v_going) = (select count(*) from unnest(candidates) c where c.chosen) then
    return;
  end if;
  candidates := array(
    select row(c.ct, c.staged_id, c.partition_id, c.pos, c.priority, c.run_at, c.cost, c.vt, c.overtakes,
      c.chosen and c.staged_id in (select unnest(v_going)), c.is_plain, c.due_at)::candidate
    from unnest(candidates) c);
  for v_n in 1..cardinality(limiters) loop
    if limiters[v_n].id = (p_policy).ahead_limiter_id then
      limiters[v_n].slots := cardinality(v_going);
    end if;
  end loop;
  update limiters l set long_waits_until = p_now + interval '300 milliseconds'
  where l.id = (p_policy).ahead_limiter_id;
end
$$;

-- How many worker slots of a policy are free for a job of a long task, and which tasks are short. No row: nobody asks, because
-- the policy has one task, or is not ahead by a time. If pools differ in the policy's tasks, nobody knows which of their slots
-- the jobs in flight wait for: no row either.
create or replace function _slots_for_long_jobs(
  p_policy policies, p_now timestamptz, out short_tasks text[], out free int
) returns setof record language plpgsql stable rows 1 as $$
begin
  if (p_policy).ahead_seconds is null
    or (select count(*) from policy_tasks t where t.policy_id = (p_policy).id) < 2 then
    return;
  end if;
  return query
  select array(select d.task from unnest(l.durations) d where d.seconds <= (p_policy).ahead_seconds),
    s.assumed - l.in_flight - cardinality(_still_ending(l.ending))
      + case when l.elsewhere_until > p_now
        then _waiting_elsewhere(l.policy_id, (p_policy).ahead_seconds + 1, p_now) else 0 end
  from limiters l
  cross join lateral _worker_slots(l.policy_id) s
  where l.id = (p_policy).ahead_limiter_id and s.alike;
end
$$;

-- Says when passes look at the waiters of a limiter, which the caller has locked. Null: when somebody says so.
--
--   p_pools   how many worker pools its cap goes by, as who waits knows it; null: by none
create or replace function _look_at_waiters(p_id bigint, p_wake_at timestamptz, p_pools int) returns void language plpgsql as $$
begin
  update limiters l set wake_at = p_wake_at, fewest_pools = p_pools
  where l.id = p_id and (l.wake_at is distinct from p_wake_at or l.fewest_pools is distinct from p_pools);
end
$$;
