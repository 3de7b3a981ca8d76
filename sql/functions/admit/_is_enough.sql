-- Whether the workers have enough to do while releases rest (a quarter of a second) and a pass makes up for them.
create or replace function :DISPATCH_POLICY_SCHEMA._is_enough(p_in_flight int, p_finished_per_second float8)
returns boolean language sql immutable as $$
  select p_finished_per_second > 0 and p_in_flight >= p_finished_per_second * 0.3;
$$;
