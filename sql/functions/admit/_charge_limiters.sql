-- Charges the limiters for what a pass put in flight, sets when passes look at their waiters, and reserves slots (see
-- _reservations).
--
--   p_elsewhere   a job that went may wait in Graphile Worker for something else than a slot
create or replace function _charge_limiters(
  p_policy_id int, p_partition_ids uuid[], p_left room_after[],
  p_lacks lack[], p_verdicts verdict[], p_now timestamptz,
  p_elsewhere boolean
) returns void language plpgsql volatile as $$   -- planned as _charge
declare
  v_limiter_ids bigint[] := array(select (x.before).id from unnest(p_left) x);
  -- only slots of keyed limiters are reserved; one that was keyed before may have a reservation still
  v_has_keyed boolean := exists (
    select from unnest(p_left) x where (x.before).breadth = 1 or (x.before).reserved_for is not null);
  v_reservations reservation[] := '{}';
begin
  if v_has_keyed then
    v_reservations := _reservations(p_partition_ids, p_left, p_verdicts, p_now);
  end if;
  update limiters l set
    tokens = case when l.by_tokens then x.tokens_left else l.tokens end,
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
      (x.before).reserved_until, (x.before).pools, (x.before).rises_at, x.jobs, x.tokens_left, x.spent_then
    from unnest(p_left) x
  ) x
  left join unnest(v_reservations) r on r.limiter_id = x.id
  -- one of a partition outside the claim stays, whoever else was admitted
  cross join lateral (
    select case when x.reserved_for <> all (p_partition_ids) then x.reserved_for else r.partition_id end as partition_id
  ) o
  cross join lateral (
    select o.partition_id, case when x.reserved_for = o.partition_id then x.reserved_until else r.until end as until
  ) k
  left join (
    select k.limiter_id, min(k.ready_at) filter (where k.breadth > 0) as wake_at from unnest(p_lacks) k group by k.limiter_id
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
    left join unnest(v_reservations) r on r.limiter_id = (x.before).id
    where (x.before).reserved_for = any(p_partition_ids) and r.partition_id is distinct from (x.before).reserved_for
      and x.slots_left > 0;
  end if;
end
$$;
