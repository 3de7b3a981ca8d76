-- Graphile Worker's add_jobs, with `partition_keys` beside `specs`: null if a key is to be worked out. The same with
-- `expires_at`: null if the policy's `expiresAfter` counts.
create or replace function :DISPATCH_POLICY_SCHEMA.add_jobs(
  specs :GRAPHILE_WORKER_SCHEMA.job_spec[], job_key_preserve_run_at boolean default false, partition_keys text[] default null,
  expires_at timestamptz[] default null
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language sql volatile
set search_path = pg_catalog, pg_temp as $$
  select a.* from :DISPATCH_POLICY_SCHEMA._add_jobs(
    specs, case when job_key_preserve_run_at then 'preserve_run_at' else 'replace' end, partition_keys, expires_at) a;
$$;
