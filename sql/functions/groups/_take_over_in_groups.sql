-- A copy takes the place of its original in the groups: the original completes without running.
create or replace function :DISPATCH_POLICY_SCHEMA._take_over_in_groups(p_job_id bigint, p_copy_id bigint)
returns void language plpgsql volatile as $$
begin
  if not exists (select from :DISPATCH_POLICY_SCHEMA._private_groups) then
    return;
  end if;
  update :DISPATCH_POLICY_SCHEMA._private_group_jobs m set staged_id = p_copy_id, job_id = null
  where (m.job_id = p_job_id or m.staged_id = (
      select :DISPATCH_POLICY_SCHEMA._staged_id_of(j.flags) from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id))
    -- somebody may have copied the flags of a job that goes on
    and not exists (select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = m.staged_id)
    and not exists (
      select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.staged_id = m.staged_id and f.job_id <> p_job_id)
    and not exists (   -- the copy replaced a job of the same group
      select from :DISPATCH_POLICY_SCHEMA._private_group_jobs x where x.staged_id = p_copy_id and x.group_id = m.group_id);
end
$$;
