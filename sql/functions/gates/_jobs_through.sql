-- How many jobs of this cost a throttle lets go, one after the other, by the rule of _lets_through; a million at most.
create or replace function _jobs_through(tokens float8, capacity float8, cost float8)
returns float8 language sql immutable as $$
  select case when cost = 0 and tokens >= 0 then 1e6   -- it needs no token
    else greatest(
      least(floor((tokens + 1e-9) / greatest(cost, 1e-9)), 1e6),
      case when _is_full(tokens, capacity) then 1 end) end;
$$;
