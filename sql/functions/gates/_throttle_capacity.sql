-- How many tokens a full bucket has, or a window in which nothing was spent. A calendar window has its rate, also one below
-- one: it has no longer window instead.
create or replace function _throttle_capacity(
  numbers gate_numbers
) returns float8 language sql immutable as $$
  select case when (numbers).calendar is not null and (numbers).rate > 0 then (numbers).rate
    else greatest(
      coalesce(case when (numbers).sliding is not true then (numbers).burst end, (numbers).rate), 1) end;
$$;
