-- The `sort_at` of a job that comes back to staging. Under strict order it goes first. Under deadlines it keeps its own.
create or replace function _sort_at_again(p_order text, p_sort_at timestamptz) returns timestamptz
language sql immutable as $$
  select case p_order when 'strict' then '-infinity'::timestamptz when 'deadline' then p_sort_at end;
$$;
