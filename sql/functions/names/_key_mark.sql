-- What the flag of an admitted job tells of its key.
create or replace function _key_mark(job_key text) returns text language sql immutable as $$
  select left(md5(job_key), 8);
$$;
