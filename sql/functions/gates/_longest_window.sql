-- The longest of the remembered windows that a limiter has had.
create or replace function _longest_window(
  limiter limiters, now timestamptz
) returns float8 language sql stable as $$
  select case when _is_window(limiter.numbers) then greatest(
    _window_remembered(limiter.numbers, now),
    case when limiter.longest_until > now then limiter.longest end) end;
$$;
