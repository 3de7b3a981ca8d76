-- Completes originals that wait although they were copied, and deletes the records of those that Graphile Worker does
-- not have any more.
create or replace function _forget_copied() returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
  select _complete_copied(null);
  delete from copied_jobs o
  where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = o.job_id);
$$;
