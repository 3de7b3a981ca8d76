-- Takes from the limiters what a pass put in flight, sets when their waiters are woken, and reserves slots.
--
-- A partition that needs two full keyed scopes might never find room in both at once. So while it waits for a keyed scope,
-- one slot of each keyed scope before that one is reserved for it. Each limiter has one such slot. The order is the same
-- for all, so that no two partitions wait for each other.
--
-- Without an end, one job that ran for hours in the further scope left the nearer one idle for hours. So the reservation
-- lasts as long as the partition has waited, and at least one second. Then others may use the slot until the partition is
-- looked at again. The wait does not count from the time of its job, which may be long ago. So a slot is idle half of the
-- time at most, and a longer wait gets a longer reservation.
--
--   p_elsewhere   a job that went may wait in Graphile Worker for something else than a slot
create or replace function :DISPATCH_POLICY_SCHEMA._charge_limiters(
  p_policy_id int, p_partition_ids uuid[], p_left :DISPATCH_POLICY_SCHEMA._private_limiter_left[],
  p_lacks :DISPATCH_POLICY_SCHEMA._private_lack[], p_verdicts :DISPATCH_POLICY_SCHEMA._private_verdict[], p_now timestamptz,
  p_elsewhere boolean
) returns void language plpgsql volatile as $$   -- planned as _charge
declare
  v_limiter_ids bigint[] := array(select (x.now).id from unnest(p_left) x);
begin
  with lim as materialized (
    select (x.now).*, x.jobs, x.slots_left, x.tokens_left, x.spent_then from unnest(p_left) x
  ),
  reserve as materialized (
    select distinct on (l.id) l.id, p.partition_id,
      p_now + greatest(case when p.admitted = 0 then p_now - p.waiting_since end, interval '1 second') as until
    from unnest(p_verdicts) v
    cross join lateral (select (v.leftover).*) p
    cross join lateral (select (v.lack).*) k
    cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
    join lim l on l.id = u.id
    where k.breadth = 1 and p.probe_job_id is null and not k.by_tokens and k.reason <> 'max_zero' and u.ord < k.ord
      and l.breadth = 1 and l.slots_left = 1
      and (l.reserved_for is null or l.reserved_for = p.partition_id or l.reserved_for = any(p_partition_ids))
    order by l.id, (l.reserved_for = p.partition_id) desc nulls last, (p.decayed + 1) / p.weight, p.partition_id
  ),
  charged as (
    update :DISPATCH_POLICY_SCHEMA._private_limiters l set
      tokens = case when l.by_tokens then x.tokens_left else l.tokens end,
      spent = coalesce(x.spent_then, l.spent),
      refilled_at = case when l.by_tokens then
        :DISPATCH_POLICY_SCHEMA._throttle_filled_at(l.refilled_at, p_now) else l.refilled_at end,
      in_flight = l.in_flight + case when l.by_tokens then 0 else x.jobs end,
      admitted = l.admitted + x.jobs,
      wake_at = least(l.wake_at, w.wake_at, k.until),
      reserved_for = r.partition_id,
      reserved_until = k.until,
      sampled_at = case when x.measured is not null then p_now else l.sampled_at end,
      sampled_released = case when x.measured is not null then l.released else l.sampled_released end,
      finished_per_second = coalesce(x.measured, l.finished_per_second),
      elsewhere_until = case when p_elsewhere and l.kind = 'ahead' then p_now + interval '1 day' else l.elsewhere_until end
    from lim x
    left join reserve r on r.id = x.id
    cross join lateral (
      select case when x.reserved_for = r.partition_id then x.reserved_until else r.until end as until
    ) k
    left join (
      select k.limiter_id, min(k.ready_at) as wake_at from unnest(p_lacks) k
      where k.breadth > 0 and k.ready_at is not null group by k.limiter_id
    ) w on w.limiter_id = x.id
    where l.id = x.id and l.id = any(v_limiter_ids) and (
      x.jobs > 0 or x.tokens_left < coalesce(x.tokens, x.shadow_tokens) or x.measured is not null
      or w.limiter_id is not null or l.refilled_at > p_now + interval '1 second'
      or (l.reserved_for is distinct from r.partition_id
        and (l.reserved_for is null or l.reserved_for = any(p_partition_ids) or x.reserved_for is null)))
    returning l.id
  )
  -- a reservation that ends unused makes room for those who wait there
  insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
  select p_policy_id, x.id from lim x left join reserve r on r.id = x.id
  where x.reserved_for = any(p_partition_ids) and r.partition_id is distinct from x.reserved_for
    and x.slots_left > 0;
end
$$;
