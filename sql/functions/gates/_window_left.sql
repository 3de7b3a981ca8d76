-- What a window has left.
create or replace function _window_left(
  spent spending[], numbers gate_numbers, now timestamptz
) returns float8 language sql stable as $$
  select _throttle_capacity(numbers)
    - _window_spent(spent, _window_seconds(numbers, now), now);
$$;
