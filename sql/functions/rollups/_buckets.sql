-- The upper bounds of the buckets in which waits, lags and runs are counted, in seconds, ascending. Another bucket counts what
-- is longer than all of them. Rows that were folded before keep their counts, so a change here needs a migration of them.
create or replace function :DISPATCH_POLICY_SCHEMA._buckets() returns float8[] language sql immutable as $$
  select array[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200, 86400]::float8[];
$$;
