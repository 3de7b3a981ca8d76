-- Whether an error says nothing of the jobs of an attempt: the statement was ended, or the server is busy or going down.
create or replace function :DISPATCH_POLICY_SCHEMA._concerns_all(p_sqlstate text) returns boolean
language sql immutable as $$
  -- 53100 disk_full, 53300 too_many_connections; a lack of memory may be one of so many jobs at once
  select left(p_sqlstate, 2) = any('{40,57}') or p_sqlstate = any('{53100,53300}');
$$;
