-- The limiters that have no room for the partitions' next jobs, and when each is looked at again and lets something go.
create or replace function :DISPATCH_POLICY_SCHEMA._lacks(
  p_leftovers :DISPATCH_POLICY_SCHEMA._private_leftover[], p_left :DISPATCH_POLICY_SCHEMA._private_limiter_left[],
  p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_lack[] language plpgsql stable as $$   -- planned as _charge
begin
  return array(
    select row(
        p.partition_id, u.ord, l.id, l.breadth, l.kind, l.tokens is not null, t.ready_at,
        case when l.is_zero then coalesce(l.zero_until, 'infinity') else coalesce(t.ready_at, 'infinity') end,
        -- the limiter is gone: the partition is looked at again after a second
        coalesce(l.reason, 'concurrency_full')):::DISPATCH_POLICY_SCHEMA._private_lack
    from unnest(p_leftovers) p
    cross join lateral unnest(p.limiter_ids) with ordinality u (id, ord)
    left join (
      select n.*, x.slots_left, x.tokens_left, x.spent_then, r.reason, z.is_zero,
        case when z.is_zero then :DISPATCH_POLICY_SCHEMA._zero_until(n.id, p_now) end as zero_until
      from unnest(p_left) x
      cross join lateral (select (x.now).*) n
      cross join lateral (
        select :DISPATCH_POLICY_SCHEMA._lack_reason(n.kind, n.tokens, n.rate, coalesce(n.share, n.cap)) as reason) r
      cross join lateral (select r.reason in ('rate_zero', 'max_zero') as is_zero) z
      offset 0   -- once a limiter, for however many partitions
    ) l on l.id = u.id
    cross join lateral (
      select case when l.tokens is not null then :DISPATCH_POLICY_SCHEMA._throttle_ready_at(
            l.tokens_left, l.rate, l.per, l.capacity, l.spent_then, l.calendar, p.head_cost, p_now)
          -- nobody is notified when Graphile Worker has recorded an end
          when l.ending > 0 then p_now + interval '10 milliseconds' end as ready_at) t
    where p.head_id is not null and (
      l.id is null
      or :DISPATCH_POLICY_SCHEMA._lacks_room(
        l.slots_left, l.reserved_for, case when l.tokens is not null then l.tokens_left end, l.capacity, l.rate,
        p.partition_id, p.head_cost)));
end
$$;
