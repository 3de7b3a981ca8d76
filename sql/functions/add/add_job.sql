-- Graphile Worker's add_job, with the same parameters in the same order and ours last. Stages the job if its task has a
-- policy, else passes it on.
--
-- `partition_key` names the partition. Without it, this function works the key out if the policy's partitionBy is a path.
-- Any other key is worked out by the next tick of a process that has the policy.
--
-- A job that is not admitted until `expires_at` is dropped. Without it, the policy's `expiresAfter` counts.
--
-- Each add of a `job_key` with `debounce_wait` postpones the job to that time from now. At the latest it is due
-- `debounce_max_wait` after the first add. Without them, the policy's `debounce` counts.
--
--   select dispatch_policy.add_job('fetch_endpoint', '{"endpointId": "ep1"}');
create or replace function :DISPATCH_POLICY_SCHEMA.add_job(
  identifier text, payload json default null, queue_name text default null, run_at timestamptz default null,
  max_attempts int default null, job_key text default null, priority int default null, flags text[] default null,
  job_key_mode text default 'replace', partition_key text default null, expires_at timestamptz default null,
  debounce_wait interval default null, debounce_max_wait interval default null
) returns :DISPATCH_POLICY_SCHEMA.added_job language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_added :DISPATCH_POLICY_SCHEMA.added_job;
begin
  -- qualified: who may not use that schema is told so
  select a.* into v_added from :DISPATCH_POLICY_INTERNAL._add_jobs(
    array[row(
      identifier, payload, queue_name, run_at, max_attempts::smallint, job_key, priority::smallint, flags
    ):::GRAPHILE_WORKER_SCHEMA.job_spec], coalesce(job_key_mode, 'replace'), array[partition_key],
    case when expires_at is not null then array[expires_at] end, :DISPATCH_POLICY_INTERNAL._debounce(debounce_wait, debounce_max_wait)) a;
  return v_added;
end
$$;
