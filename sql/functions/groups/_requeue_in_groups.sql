-- Keeps a job that a full worker pool requeues in its groups. Called after its slot was released.
--
-- The danger: the release has written the id of the original, which completes without running, and by that id the job would
-- soon be gone. The cure: the job is known by its staged id again, and if a copy is parked, by the copy's id.
create or replace function _requeue_in_groups(p_job_id bigint, p_staged_id bigint)
returns void language plpgsql volatile as $$
begin
  if not exists (select from groups) then
    return;
  end if;
  update group_jobs m set staged_id = p_staged_id, job_id = (
    select s.parked_job_id from staged_jobs s where s.id = p_staged_id)
  where m.job_id = p_job_id;
end
$$;
