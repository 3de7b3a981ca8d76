-- The longest time that a job is quarantined that was refused so many times, plus a minute.
create or replace function _longest_quarantine(p_failures int) returns interval
language sql immutable as $$
  select _quarantine_for(p_failures) + interval '1 minute';
$$;
