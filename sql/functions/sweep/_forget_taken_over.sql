-- Originals that Graphile Worker has no more need no note.
create or replace function :DISPATCH_POLICY_SCHEMA._forget_taken_over() returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  delete from :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o
  where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = o.job_id);
$$;
