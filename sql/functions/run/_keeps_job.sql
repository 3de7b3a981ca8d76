-- Whether a job is still locked for this attempt, by this pool. Each fetch writes locked_at, and nothing else does. The number
-- of attempts tells less. If somebody adds the job's key again or removes it, Graphile Worker sets that number to the last
-- one, and the job runs on.
--
--   p_locked_at   as JavaScript has read it, in milliseconds. Null: it could not read it
create or replace function _keeps_job(
  p_job_id bigint, p_attempt int, p_pool_id text, p_locked_at timestamptz
) returns boolean language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and j.locked_by is not distinct from p_pool_id
      and case when p_locked_at is null then j.attempts = p_attempt
        else abs(extract(epoch from j.locked_at - p_locked_at)) < 0.001 end);
$$;
