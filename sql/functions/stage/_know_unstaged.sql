-- For keyed jobs that were just staged, if jobs of their policy were unstaged meanwhile. The call may have waited until the
-- job before was unstaged, which Graphile Worker has now. That one looks newer than the staged job, which would be dropped
-- for it. So the staged job records it as known. This is a statement of its own, because it must see what was committed
-- during the wait.
--
--   p_policy   as it was read before the jobs were staged
create or replace function _know_unstaged(
  p_policy policies, p_jobs json
) returns void language plpgsql as $$
begin
  if exists (
    select from policies p
    where p.id = (p_policy).id and p.unstaged_at = (p_policy).unstaged_at) then
    return;
  end if;
  update staged_jobs s set known_job_id = j.id, known_revision = j.revision
  from _job_records(p_jobs) k
  cross join lateral (
    select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x where x.key = k."jobKey" limit 1) j
  where s.job_key = k."jobKey" and s.parked_job_id is null;
end
$$;
