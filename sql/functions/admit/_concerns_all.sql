-- Whether an error is no job's fault: the statement was cancelled, or the server is busy or shuts down.
create or replace function _concerns_all(p_sqlstate text) returns boolean
language sql immutable as $$
  -- 53100 disk_full, 53300 too_many_connections; out of memory may come from so many jobs at once
  select left(p_sqlstate, 2) = any('{40,57}') or p_sqlstate = any('{53100,53300}');
$$;
