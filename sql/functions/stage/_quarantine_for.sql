-- For how long a job is quarantined that was refused so many times.
create or replace function _quarantine_for(p_failures int) returns interval
language sql immutable as $$
  select make_interval(secs => least(power(2, least(p_failures, 12)), 3600));
$$;
