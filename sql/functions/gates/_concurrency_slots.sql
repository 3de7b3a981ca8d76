-- The slots left under a cap, never negative: a cap that was lowered below the number in flight leaves none.
create or replace function _concurrency_slots(max int, in_flight int)
returns int language sql immutable as $$
  select greatest(max - greatest(in_flight, 0), 0);
$$;
