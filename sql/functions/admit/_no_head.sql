-- The place of a partition without a due job: after the place of every job. The columns of `partitions` and
-- `arrivals` have it as their default. It is a query without parameters, so that PostgreSQL inlines it.
create or replace function _no_head()
returns table (priority smallint, run_at timestamptz, id bigint) language sql immutable rows 1 as $$
  select 32767::smallint, 'infinity'::timestamptz, 9223372036854775807;
$$;
