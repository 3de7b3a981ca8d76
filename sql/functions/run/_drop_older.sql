-- Drops the staged job of a running job's key, if the staged one is older: it was added when the running one was not there.
-- A running job that was admitted is the older one itself.
create or replace function _drop_older(p_job_id bigint) returns void language plpgsql as $$
declare
  v_older_ids bigint[] := array(
    select s.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    join staged_jobs s on s.job_key = j.key
    where j.id = p_job_id and not _is_ours(j.flags, j.created_at, j.key)
      and (s.known_job_id, s.known_revision) is distinct from (j.id, j.revision)
    for update of s skip locked);
begin
  perform _drop_staged(v_older_ids) where v_older_ids <> '{}';
end
$$;
