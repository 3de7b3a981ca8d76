-- The job that Graphile Worker has under a key, as far as a staged job of that key is concerned.
--
--   p_known_*      the job that Graphile Worker had under the key when the staged one was added
--   next_revision  that the next job of the key gets. If this job waits, the next one gets its row. If it runs or has failed
--     for good, the next one gets a row of its own.
--   is_newer       it came past this package after the staged job was added, and has not failed for good. Times do not tell,
--     because rescheduling a row changes them
create or replace function _job_of_key(p_key text, p_known_job_id bigint, p_known_revision int)
returns table (id bigint, next_revision int, is_newer boolean) language sql stable rows 1 as $$
  select j.id, case when j.locked_at is null and j.attempts < j.max_attempts then j.revision + 1 else 0 end,
    not _is_ours(j.flags, j.created_at, j.key)
      and not (j.locked_at is null and j.attempts >= j.max_attempts)
      and (j.id, j.revision) is distinct from (p_known_job_id, p_known_revision)
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.key = p_key limit 1;
$$;
