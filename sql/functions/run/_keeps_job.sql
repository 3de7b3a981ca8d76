-- Whether a job is still locked for this attempt, by this pool.
create or replace function :DISPATCH_POLICY_SCHEMA._keeps_job(p_job_id bigint, p_attempt int, p_pool_id text)
returns boolean language sql stable
set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and j.attempts = p_attempt and j.locked_by = p_pool_id);
$$;
