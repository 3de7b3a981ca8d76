-- For keyed jobs that were just staged, if their policy was switched off meanwhile. The call may have waited for a hand-back of
-- the job before, which Graphile Worker has now. That one looks newer than the staged job, which would be dropped for it. So the
-- staged job records it as known. This must be a statement of its own, because it sees what was committed during the wait.
create or replace function :DISPATCH_POLICY_SCHEMA._know_handed_back(p_policy_id int, p_jobs json) returns void
language plpgsql as $$
begin
  if exists (select from :DISPATCH_POLICY_SCHEMA._private_policies p where p.id = p_policy_id and p.enabled) then
    return;
  end if;
  update :DISPATCH_POLICY_SCHEMA._private_staged_jobs s set known_job_id = j.id, known_revision = j.revision
  from :DISPATCH_POLICY_SCHEMA._job_records(p_jobs) k
  cross join lateral (
    select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k."jobKey" limit 1) j
  where s.job_key = k."jobKey" and s.parked_job_id is null;
end
$$;
