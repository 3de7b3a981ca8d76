-- Whether a throttle is a window: it remembers what was spent, and has no tokens that flow in. It is an expression, so that
-- PostgreSQL inlines it.
create or replace function _is_window(numbers gate_numbers)
returns boolean language sql immutable as $$
  select (numbers).sliding is true or (numbers).calendar is not null;
$$;
