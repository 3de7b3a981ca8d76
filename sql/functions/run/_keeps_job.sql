-- Whether a job is still locked for this attempt, by this pool. If somebody adds its key again or removes it, Graphile Worker
-- takes its key and its other attempts off it, and it runs on. A fetch does not change updated_at.
create or replace function :DISPATCH_POLICY_SCHEMA._keeps_job(p_job_id bigint, p_attempt int, p_pool_id text)
returns boolean language sql stable
set search_path = pg_catalog, pg_temp as $$
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and j.locked_by is not distinct from p_pool_id and (
      j.attempts = p_attempt
      or j.key is null and j.attempts = j.max_attempts and j.updated_at >= j.locked_at));
$$;
