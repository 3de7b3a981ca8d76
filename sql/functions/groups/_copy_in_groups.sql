-- A copy takes the place of its original in the groups: the original completes without running.
--
-- The danger: somebody retried a parked job by hand, so its original started while its row still waited in staging. The copy
-- did not take the place. The next pass found the original gone, and the callback came before the copy had run. The cure: a
-- job is known by its id in Graphile Worker, wherever else it waits. Its flag counts only if an admission wrote it: somebody
-- may have copied the flags of a job that goes on.
create or replace function _copy_in_groups(p_job_id bigint, p_copy_id bigint)
returns void language plpgsql volatile as $$
begin
  if not exists (select from groups) then
    return;
  end if;
  update group_jobs m set staged_id = p_copy_id, job_id = null
  where (m.job_id = p_job_id or m.staged_id = (
      select _staged_id_of(j.flags) from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = p_job_id and _is_ours(j.flags, j.created_at, j.key)))
    and not exists (   -- the copy replaced a job of the same group
      select from group_jobs x where x.staged_id = p_copy_id and x.group_id = m.group_id);
end
$$;
