-- The longest of the remembered windows that a limiter has had.
create or replace function :DISPATCH_POLICY_SCHEMA._longest_window(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, now timestamptz
) returns float8 language sql stable as $$
  select case when :DISPATCH_POLICY_SCHEMA._is_window(limiter.numbers) then greatest(
    :DISPATCH_POLICY_SCHEMA._window_remembered(limiter.numbers, now),
    case when limiter.longest_until > now then limiter.longest end) end;
$$;
