-- For how many seconds a window must know what was spent. A calendar window also remembers the one before: if a clock goes
-- back over its beginning, that one has no more than it had.
create or replace function _window_remembered(
  numbers gate_numbers, now timestamptz
) returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when (numbers).calendar is not null then 2 * (numbers).per
    else _window_seconds(numbers, now) end;
$$;
