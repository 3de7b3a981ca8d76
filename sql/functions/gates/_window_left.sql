-- What a window has left.
create or replace function :DISPATCH_POLICY_SCHEMA._window_left(
  spent :DISPATCH_POLICY_SCHEMA._private_spending[], numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers, now timestamptz
) returns float8 language sql stable as $$
  select :DISPATCH_POLICY_SCHEMA._throttle_capacity(numbers)
    - :DISPATCH_POLICY_SCHEMA._window_spent(spent, :DISPATCH_POLICY_SCHEMA._window_seconds(numbers, now), now);
$$;
