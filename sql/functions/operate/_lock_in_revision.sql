-- Locks these rows of Graphile Worker's, by its own reschedule_jobs, which changes only updated_at here. Returns those that
-- still have the given revision. Without it, whoever is about to end a job could end the next job of its key, which got the
-- row in between.
create or replace function _lock_in_revision(p_job_ids bigint[], p_revisions int[])
returns bigint[] language sql volatile as $$
  select coalesce(array_agg(j.id), '{}')
  from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(p_job_ids) j
  join unnest(p_job_ids, p_revisions) u (id, revision) on u.id = j.id and u.revision = j.revision;
$$;
