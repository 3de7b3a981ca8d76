-- Gives back what an in-flight job holds, though it has not ended: for one that hangs, or that is known to be lost. It is
-- not stopped; should it run on, it counts no longer, and its end gives nothing back. One that has not started yet would
-- start past its limits: it waits in staging again, and passes its gates once more. By Graphile Worker's id or the staged
-- one.
--
--   select * from dispatch_policy.release(1234, reason => 'hangs since the deploy');
create or replace function :DISPATCH_POLICY_SCHEMA.release(
  job_id bigint, reason text default null, by text default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if release.job_id is null then
    raise exception 'dispatch_policy: release: job_id is null, expected the id of a job' using errcode = 'DPARG';
  end if;
  return query select s.matched, s.changed from :DISPATCH_POLICY_SCHEMA._release_slots(
    release.job_id, null, null, release.reason, release.by) s;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.release from public;
