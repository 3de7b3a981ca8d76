-- The length of a sliding window in seconds. A rate below one is one in a longer window. A window of more than 1e9 seconds
-- would begin before PostgreSQL's first timestamp, and fail each tick of its policy. So it is 1e9 seconds long.
create or replace function :DISPATCH_POLICY_SCHEMA._window_seconds(numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers)
returns float8 language sql immutable as $$
  select least(
    case when (numbers).rate > 0 and (numbers).rate < 1 then (numbers).per / (numbers).rate else (numbers).per end, 1e9);
$$;
