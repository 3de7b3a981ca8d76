-- How many tokens a full bucket has, or a window in which nothing was spent.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_capacity(
  numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers
) returns float8 language sql immutable as $$
  select greatest(
    coalesce(case when (numbers).sliding is not true then (numbers).burst end, (numbers).rate), 1);
$$;
