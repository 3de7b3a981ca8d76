-- Which slots a pass reserves.
--
-- A partition that needs two full keyed scopes might never find room in both at once. So while it waits for a keyed scope,
-- one slot of each keyed scope before that one is reserved for it. Each limiter has one such slot. The order is the same
-- for all, so that no two partitions wait for each other.
--
-- Without an end, one job that ran for hours in the further scope left the nearer one idle for hours. So the reservation
-- lasts as long as the partition has waited, and at least one second. Then others may use the slot until the partition is
-- looked at again. The wait does not count from the time of its job, which may be long ago. So a slot is idle half of the
-- time at most, and a longer wait gets a longer reservation.
create or replace function _reservations(
  p_partition_ids uuid[], p_left room_after[],
  p_verdicts verdict[], p_now timestamptz
) returns reservation[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(r.id, r.partition_id, r.until)::reservation
    from (
      select distinct on (l.id) l.id, p.partition_id,
        p_now + greatest(case when p.admitted = 0 then p_now - p.waiting_since end, interval '1 second') as until
      from unnest(p_verdicts) v
      cross join lateral (select (v.leftover).*) p
      cross join lateral (select (v.lack).*) k
      cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
      join (select (x.before).*, x.slots_left from unnest(p_left) x) l on l.id = u.id
      where k.breadth = 1 and p.probe_job_id is null and not k.by_tokens and k.reason <> 'max_zero' and u.ord < k.ord
        and l.breadth = 1 and l.slots_left = 1
        and (l.reserved_for is null or l.reserved_for = p.partition_id or l.reserved_for = any(p_partition_ids))
      order by l.id, (l.reserved_for = p.partition_id) desc nulls last, (p.decayed + 1) / p.weight, p.partition_id
    ) r);
end
$$;
