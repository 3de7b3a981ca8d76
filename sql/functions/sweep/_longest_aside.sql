-- How long a job that was refused so many times is set aside at most, and a minute.
create or replace function :DISPATCH_POLICY_SCHEMA._longest_aside(p_failures int) returns interval
language sql immutable as $$
  select make_interval(secs => least(power(2, least(p_failures, 12)), 3600) + 60);
$$;
