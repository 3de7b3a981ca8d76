-- Of how many seconds until `now` a window counts what was spent.
--
-- A sliding window counts its length. A rate below one is one in a longer window. A window of more than 1e9 seconds would
-- begin before PostgreSQL's first timestamp, and fail each tick of its policy. So it is 1e9 seconds long. A calendar window
-- counts from its beginning, which is in it: hence the microsecond.
create or replace function _window_seconds(
  numbers gate_numbers, now timestamptz
) returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case
    when (numbers).calendar is not null then
      extract(epoch from now - _calendar_begins_at((numbers).calendar, now))::float8 + 1e-6
    when (numbers).rate > 0 and (numbers).rate < 1 then least((numbers).per / (numbers).rate, 1e9)
    else least((numbers).per, 1e9) end;
$$;
