-- In which portion of 8 MB a row is, by the bytes of the rows before it: 0 for the first ones. Whoever reads payloads, contexts
-- or errors of many rows into one array, or into the memory of a process, reads one portion at a time. A thousand of them
-- have a kilobyte each, or a megabyte.
--
-- A portion has at least one row, whatever that one weighs.
create or replace function _portion(p_bytes_before numeric) returns int language sql immutable as $$
  select trunc(coalesce(p_bytes_before, 0) / 8000000)::int;
$$;
