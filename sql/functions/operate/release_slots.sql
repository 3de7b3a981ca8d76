-- Frees the slots of an in-flight job that has not ended: one that hangs, or that is known to be lost. The job is not
-- stopped. If it runs on, it does not count any more, and its end frees nothing.
--
-- A job that has not started yet would start past its limits. So it waits in staging again, and passes its gates once more.
-- `job_id` is Graphile Worker's id or the staged one.
--
-- `matched` is 1 if it has slots. `changed` is then 0 if it keeps them, because another transaction has the job, or a limit
-- that it counts for, locked. Call it again.
--
--   select * from dispatch_policy.release_slots(1234, reason => 'hangs since the deploy');
create or replace function :DISPATCH_POLICY_SCHEMA.release_slots(
  job_id bigint, reason text default null, by text default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
begin
  if release_slots.job_id is null then
    raise exception 'dispatch_policy: release_slots: job_id is null, expected the id of a job' using errcode = 'DPARG';
  end if;
  return query select s.matched, s.changed from _release_slots(
    release_slots.job_id, null, null, release_slots.reason, release_slots.by) s;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.release_slots from public;
