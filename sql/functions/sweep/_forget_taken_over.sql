-- Completes originals that wait although they were taken over, and deletes the records of those that Graphile Worker does
-- not have any more.
create or replace function _forget_taken_over() returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '1s' as $$
  select _complete_taken_over(null);
  delete from taken_over_jobs o
  where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = o.job_id);
$$;
