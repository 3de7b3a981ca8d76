-- The limiters that have no room for the partitions' next jobs, and when each may have room.
create or replace function _lacks(
  p_leftovers leftover[], p_left room_after[],
  p_now timestamptz
) returns lack[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(
        p.partition_id, u.ord, l.id, l.breadth, l.kind, l.tokens is not null,
        case when l.tokens is not null then _throttle_ready_at(
            l.tokens_left, l.rate, l.per, l.capacity, l.spent_then, l.calendar, p.head_cost, p_now)
          -- nobody is notified when Graphile Worker has recorded an end
          when l.ending > 0 then p_now + interval '10 milliseconds' end,
        -- the limiter is gone: the partition is looked at again after a second
        case when l.id is null then 'concurrency_full'
          else _lack_reason(l.kind, l.tokens, l.rate, coalesce(l.share, l.cap)) end)::lack
    from unnest(p_leftovers) p
    cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
    left join (
      select (x.before).*, x.slots_left, x.tokens_left, x.spent_then from unnest(p_left) x
    ) l on l.id = u.id
    where p.head_id is not null and (
      l.id is null
      or _lacks_room(
        l.slots_left, l.reserved_for, case when l.tokens is not null then l.tokens_left end, l.capacity, l.rate,
        p.partition_id, p.head_cost)));
end
$$;
