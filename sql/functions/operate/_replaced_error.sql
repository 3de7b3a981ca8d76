-- The last error of a parked job that is failed for good because a newer one of its key has taken its place.
create or replace function _replaced_error() returns text language sql immutable as $$
  select 'replaced under its job key';
$$;
