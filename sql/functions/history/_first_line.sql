-- The first line of an error, as the history keeps it: at most 1,000 characters.
create or replace function _first_line(error text) returns text language sql immutable as $$
  select left(split_part(error, e'\n', 1), 1000);
$$;
