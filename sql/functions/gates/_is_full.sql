-- Whether a bucket of this capacity is full. 1e-9 is for sums that were rounded. It is an expression, so that PostgreSQL
-- inlines it.
create or replace function _is_full(tokens float8, capacity float8)
returns boolean language sql immutable as $$
  select tokens >= capacity - 1e-9;
$$;
