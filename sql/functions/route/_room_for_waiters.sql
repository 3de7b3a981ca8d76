-- How many waiters a limiter may have room for. The costs of their jobs decide how many a throttle lets go: this says how
-- many to look at. If jobs count by their work, some more are woken. A partition that is woken alone would be ranked
-- alone, and use all the room. These come on top of a real slot only: beside one that is reserved, they would be denied and
-- woken again without end.
create or replace function _room_for_waiters(
  l room_before, fair_by_work boolean
) returns int language sql immutable as $$
  select greatest(least(case
    when (l).slots is not null then least((l).slots, 1000) - ((l).reserved_for is not null)::int
      + case when fair_by_work and (l).slots > ((l).reserved_for is not null)::int then 10 else 0 end
    when (l).breadth = 0 then 1   -- its numbers changed: its partition works out its time anew
    when (l).rate <= 0 then 0
    else _waiters_reached((l).tokens) end, 1000), 0)::int;
$$;
