-- The attempts of a staged job: Graphile Worker's default is 25. An expression, so that it is inlined.
create or replace function _max_attempts(max_attempts int) returns int
language sql immutable as $$
  select coalesce(max_attempts, 25);
$$;
