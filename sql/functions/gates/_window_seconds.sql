-- Sliding window: what was spent in the last `seconds`, in at most 65 entries, oldest first. Spendings of the same 64th of
-- the window are one entry, as of the last of them: it counts for a 64th too long at most, never too short. What is older
-- than the window and still remembered, since a longer one may come back, is in 65 entries more, by 64ths of that.

-- A rate below one is one in a longer window. A window of more than 1e9 seconds would begin before PostgreSQL's first
-- timestamp, and fail each tick of its policy: it is 1e9 seconds long.
create or replace function :DISPATCH_POLICY_SCHEMA._window_seconds(numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers)
returns float8 language sql immutable as $$
  select least(
    case when (numbers).rate > 0 and (numbers).rate < 1 then (numbers).per / (numbers).rate else (numbers).per end, 1e9);
$$;
