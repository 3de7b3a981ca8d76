-- How long a job that was refused so many times is set aside at most, and a minute.
create or replace function :DISPATCH_POLICY_SCHEMA._longest_aside(p_failures int) returns interval
language sql immutable as $$
  select :DISPATCH_POLICY_SCHEMA._aside_for(p_failures) + interval '1 minute';
$$;
