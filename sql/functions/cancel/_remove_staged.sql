-- Removes staged jobs, which the caller has locked. Returns how many there were. A parked job waits inside Graphile Worker,
-- which keeps it as failed for good: with its last error, or with who cancelled it and why.
create or replace function _remove_staged(
  p_ids bigint[], p_cancelled_by text, p_reason text
) returns int language plpgsql volatile as $$
declare
  v_keys text[];
  v_parked_ids bigint[];
  v_revisions int[];
  v_removed int;
begin
  perform _record_removed(p_ids, 'removed');
  delete from keyless_jobs k where k.staged_id = any(p_ids);
  perform _count_removed(array_agg(s.task_identifier), array_agg(s.partition_id))
  from staged_jobs s where s.id = any(p_ids);
  select coalesce(array_agg(j.id), '{}'), array_agg(j.revision) into v_parked_ids, v_revisions
  from staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
  where s.parked_job_id is not null and s.id = any(p_ids)
    and _is_parked(
      s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags);
  if v_parked_ids <> '{}' then
    v_parked_ids := _lock_in_revision(v_parked_ids, v_revisions);
    perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[j.id], case when p_cancelled_by is null then j.last_error
      else _cancelled_error(p_cancelled_by, p_reason, j.last_error) end)
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = any(v_parked_ids);
  end if;
  v_keys := array(
    select s.job_key from staged_jobs s
    where s.id = any(p_ids) and s.job_key is not null);
  delete from staged_jobs s where s.id = any(p_ids);
  get diagnostics v_removed = row_count;
  perform _give_up_replaced(v_keys) where v_keys <> '{}';
  return v_removed;
end
$$;
