-- Whether a worker pool has a job locked: if not, the job was unlocked since its fetch, and somebody else may have it.
create or replace function :DISPATCH_POLICY_SCHEMA._is_locked_by(p_job_id bigint, p_pool_id text)
returns boolean language sql stable
set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id and j.locked_by is not distinct from p_pool_id);
$$;
