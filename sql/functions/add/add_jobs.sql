-- Graphile Worker's add_jobs, with `partition_keys` beside `specs`: null if a key is to be worked out. The same with
-- `expires_at`: null if the policy's `expiresAfter` counts. `debounce_wait` and `debounce_max_wait` apply to all jobs of the
-- call, as in add_job.
--
-- With `then_job`, the jobs are a group. Once all have ended for good, that job is added, with the counts in its payload as
-- "_group". All tasks must have a policy.
create or replace function :DISPATCH_POLICY_SCHEMA.add_jobs(
  specs :GRAPHILE_WORKER_SCHEMA.job_spec[], job_key_preserve_run_at boolean default false, partition_keys text[] default null,
  expires_at timestamptz[] default null, debounce_wait interval default null, debounce_max_wait interval default null,
  then_job :GRAPHILE_WORKER_SCHEMA.job_spec default null
) returns setof :DISPATCH_POLICY_SCHEMA.added_job language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select a.* from :DISPATCH_POLICY_INTERNAL._add_jobs(   -- qualified: as in add_job
    specs, case when job_key_preserve_run_at then 'preserve_run_at' else 'replace' end, partition_keys, expires_at,
    :DISPATCH_POLICY_INTERNAL._debounce(debounce_wait, debounce_max_wait), then_job) a;
$$;
