-- How many waiters a throttle's tokens reach, if each job costs one: as many as there are tokens, and the next one. A
-- pass looks at the next one to know when its tokens are there.
create or replace function _waiters_reached(tokens float8) returns float8
language sql immutable as $$
  select _jobs_through(tokens, 'Infinity', 1) + 1;
$$;
