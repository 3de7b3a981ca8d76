-- How many of the next `places` go to the partitions that have been in line for longest: every tenth one. Only those count
-- that have been in line for some time (_long_since).
--
-- In fair order alone, a partition waited without end beside a stream of new partitions of a greater weight. If wait alone
-- decided, weights would count for nothing behind a long line. So each limiter counts what it admits, and gives every tenth
-- place by wait; so does a budget.
create or replace function _longest_first(
  policy policies, admitted bigint, places float8
) returns int language sql immutable as $$
  select case when (policy).half_life is null then 0
    else floor((admitted + greatest(least(places, 1000), 0)) / 10) - admitted / 10 end::int;
$$;
