-- Completes originals of which a copy is staged, or has run, and which no worker has locked: those of these jobs, or all
-- (null). The process that copied them could not complete them. A worker without this package would run them again.
create or replace function _complete_copied(p_job_ids bigint[]) returns void
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_revisions int[];
begin
  select array_agg(j.id), array_agg(j.revision) into v_ids, v_revisions
  from copied_jobs o
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = o.job_id and j.revision = o.revision and j.locked_at is null
  where p_job_ids is null or o.job_id = any(p_job_ids);
  perform from :GRAPHILE_WORKER_SCHEMA.complete_jobs(_lock_in_revision(v_ids, v_revisions))
  where v_ids is not null;
end
$$;
