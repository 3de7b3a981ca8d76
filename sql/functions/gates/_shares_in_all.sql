-- How many jobs the shares of all worker pools allow. Before a pool has told of itself, one share is there: without it no
-- job would ever go.
create or replace function _shares_in_all(share int, pools int) returns int
language sql immutable as $$
  select least(share::bigint * greatest(pools, 1), 2147483647)::int;
$$;
