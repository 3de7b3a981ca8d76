-- Fails up to so many jobs for good that were admitted and that no worker has fetched yet.
--
--   ended     Graphile Worker's ids of these jobs; the caller marks their in-flight rows
--   missed    a job was fetched or staged again before its row was locked: the caller looks again
--   is_full   there may be more than `p_max`
--
-- Graphile Worker's functions take a job that has run for four hours for one that nobody runs. So jobs that run are left out
-- before they see them.
create or replace function _cancel_admitted(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_max int,
  out ended bigint[], out missed boolean, out is_full boolean
) language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_revisions int[];
begin
  select coalesce(array_agg(x.job_id), '{}'), array_agg(x.revision) into v_ids, v_revisions
  from (
    select c.job_id, c.revision from _cancellable(p_ids, p_policy, p_partition) c
    where not (c.runs or c.ended) order by c.job_id limit p_max
  ) x;
  ended := '{}';
  if v_ids <> '{}' then
    ended := _lock_in_revision(v_ids, v_revisions);
    ended := array(
      select c.job_id from _cancellable(p_ids, p_policy, p_partition) c
      where c.job_id = any(_cancel_admitted.ended) and not (c.runs or c.ended));
    perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
      array[j.id], _cancelled_error(p_by, p_reason, j.last_error))
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = any(ended);
  end if;
  missed := cardinality(ended) < cardinality(v_ids);
  is_full := cardinality(v_ids) = p_max;
end
$$;
