-- What is left of a window.
create or replace function :DISPATCH_POLICY_SCHEMA._window_left(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], rate float8, per float8, now timestamptz
) returns float8 language sql stable as $$
  select greatest(rate, 1)
    - :DISPATCH_POLICY_SCHEMA._window_spent(spent, :DISPATCH_POLICY_SCHEMA._window_seconds(rate, per), now);
$$;
