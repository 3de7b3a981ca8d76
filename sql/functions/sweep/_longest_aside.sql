-- The longest time that a job is set aside that was refused so many times, plus a minute.
create or replace function _longest_aside(p_failures int) returns interval
language sql immutable as $$
  select _aside_for(p_failures) + interval '1 minute';
$$;
