-- The partitions that a limiter lets go now, of those that wait for it. It locks them, and skips locked ones.
--
--   room      how many it may have room for
--   by_wait   those of `woken` that go by wait, see _longest_first
--   waiting   how many wait, counted up to one more than there is room for
--   wake_at   when the router looks again, see _next_wake_at
--
-- The rows are locked by one statement and read by the next one. So this reads what a session wrote that had a row before.
create or replace function _next_in_line(
  p_policy policies, p_limiter room_before,
  p_ticked text[], p_now timestamptz,
  out room int, out woken uuid[], out by_wait uuid[], out waiting bigint, out wake_at timestamptz
) language plpgsql as $$
declare
  v_longest int := 0;
  v_next uuid[] := '{}';
  v_cost float8 := 0;   -- what the next jobs of those woken cost
  v_next_cost float8;   -- what the job of the first that is not woken costs
begin
  by_wait := '{}';
  room := _room_for_waiters(p_limiter, (p_policy).fair_by_work);
  if p_limiter.slots < 2147483647 or p_limiter.rate > 0 then
    v_longest := least(room, _longest_first(p_policy, p_limiter.admitted,
      coalesce(p_limiter.slots, _waiters_reached(p_limiter.tokens))));
  end if;
  if v_longest > 0 then
    by_wait := array(
      select x.id from partitions x
      where x.blocked_on = p_limiter.id and (p_ticked is null or x.shard = any(p_ticked))
        and x.in_line_since <= _long_since(p_now) order by x.in_line_since
      limit v_longest
      for no key update skip locked);
  end if;
  if room > 0 then
    v_next := array(
      select x.id from partitions x
      where x.blocked_on = p_limiter.id and (p_ticked is null or x.shard = any(p_ticked)) order by x.fair_key, x.due_at
      limit room
      for no key update skip locked);
  end if;
  if by_wait = '{}' and (p_limiter.slots is not null or p_limiter.breadth = 0) then
    woken := v_next;
  else
    select coalesce(array_agg(n.id) filter (where n.goes), '{}'), coalesce(max(n.cost) filter (where n.goes), 0),
      (array_agg(n.head_cost order by n.nth) filter (where not n.goes))[1]
    into woken, v_cost, v_next_cost
    from (
      select w.*, p_limiter.slots is not null or p_limiter.breadth = 0 or _lets_through(
          p_limiter.tokens, case when w.nth = 1 then p_limiter.capacity else 'Infinity' end, w.cost) as goes
      from (
        select x.id, x.head_cost, row_number() over in_order as nth, sum(x.head_cost) over in_order as cost
        from partitions x
        where x.id = any(by_wait || v_next)
        window in_order as (order by x.id = any(by_wait) desc, x.fair_key, x.due_at, x.id rows unbounded preceding)
        order by nth limit room
      ) w
    ) n;
  end if;
  waiting := (
    select count(*) from (
      select from partitions q where q.blocked_on = p_limiter.id limit room + 1) z);
  wake_at := _next_wake_at(
    p_limiter, room, waiting, cardinality(woken), v_cost, v_next_cost, p_now);
end
$$;
