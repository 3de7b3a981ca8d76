-- A wait of so many seconds: never negative, and never so long that PostgreSQL cannot add it to a time.
create or replace function _wait(seconds float8) returns interval language sql stable as $$
  select make_interval(secs => least(greatest(seconds, 0), 8.64e10));
$$;
