-- The limiters of each claimed partition, and how many of its jobs could pass each.
create or replace function _uses(
  p_claimed claimed[], p_limiters room_before[]
) returns use[] language plpgsql stable as $$   -- planned as _allocate
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
begin
  return array(
    select row(
        p.id, l.id, l.breadth,
        -- a slot that is reserved for a partition outside the claim does not count
        l.slots - case when l.reserved_for <> all (v_partition_ids) then 1 else 0 end,
        l.tokens, l.capacity, l.reserved_for,
        case
          when l.slots is not null then
            l.slots - case when l.reserved_for is not null and l.reserved_for <> p.id then 1 else 0 end
          when l.rate <= 0 then 0
          else _jobs_through(l.tokens, l.capacity, p.min_cost)
        end)::use
    from unnest(p_claimed) p
    cross join lateral unnest(p.limiter_ids) u (id)
    left join unnest(p_limiters) l on l.id = u.id);
end
$$;
