-- The admission that this transaction makes: its time, in microseconds since 1970. Graphile Worker writes the same time
-- into the updated_at of the rows it adds. So a worker sees without a query that nothing has happened to a job since.
create or replace function _admission_now() returns bigint language sql stable as $$
  select (extract(epoch from now()) * 1000000)::bigint;
$$;
