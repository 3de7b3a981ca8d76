-- A time of an explanation, as people read it: without the parts of a second.
create or replace function _to_the_second(p_time text) returns text language sql immutable as $$
  select regexp_replace(p_time, '\.\d+', '');
$$;
