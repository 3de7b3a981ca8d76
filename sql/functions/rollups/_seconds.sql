-- A time of so many milliseconds in seconds, in whole microseconds. Null: the number is no length of time. A process may send
-- any number, and one that is too great or too small for `real` would fail the release.
create or replace function _seconds(ms float8) returns real language sql immutable as $$
  select case when ms between 0 and 1e12 then (trunc(ms * 1000) / 1e6)::real end;
$$;
