-- The jobs in flight that a cancel is for, by id or by policy and partition, if Graphile Worker's row still has them.
-- PostgreSQL inlines this query.
--
--   runs    a worker has fetched it
--   ended   it has failed for good
--   cancelled   a cancel has marked it
create or replace function _cancellable(p_ids bigint[], p_policy text, p_partition text)
returns table (job_id bigint, revision int, runs boolean, ended boolean, cancelled boolean) language sql stable as $$
  select f.job_id, j.revision, j.locked_at is not null, j.locked_at is null and j.attempts >= j.max_attempts,
    f.cancelled_at is not null
  from in_flight_jobs f
  cross join lateral (   -- one look at the index for each job
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
  where (p_ids is null or f.job_id = any(p_ids) or f.staged_id = any(p_ids))
    and (p_policy is null or f.policy_id = (
      select p.id from policies p where p.name = p_policy))
    and (p_partition is null or f.partition_id = _partition_id(p_policy, p_partition))
    and _is_row_of(f.revision, f.staged_id, j.revision, j.flags);
$$;
