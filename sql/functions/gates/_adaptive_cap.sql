-- cap = max(current, min), never above max. If nothing is in flight, the cap is at least initial_max: the safety valve.
create or replace function _adaptive_cap(
  current_max int, min int, max int, initial_max int, in_flight int
) returns int language sql immutable as $$
  select least(
    greatest(current_max, min, case when in_flight = 0 then initial_max else 0 end),
    coalesce(max, 2147483647)
  );
$$;
