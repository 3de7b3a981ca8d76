-- A job of a policy's task that starts without having been admitted: added by graphile_worker.add_job in a trigger or in
-- another language, by the worker's crontab, retried after its slot was given back, or put in the place of an admitted
-- one under its key. Called before its task runs, and says what is to become of it:
--
--   admitted     it holds its slots now, and runs
--   taken_over   a copy is staged, under the id returned; the original is to complete without running
--   ungoverned   the policy is switched off: it runs, and holds nothing
--   gone         Graphile Worker has it no more: while this process was stopped its pool was counted dead, and another one
--                ran the job to its end. It is to complete without running
--
--   p_job_id, p_revision   Graphile Worker's row, as it was fetched
--   p_attempt, p_pool_id   which attempt starts, and where: see _start_attempt
--   p_batch       the job as _stage takes it, in a batch of one
--   p_unmanaged   enforce: it goes at once where it would not overtake anybody and every gate has room for it, else it
--                   is taken over and admitted in its turn;
--                 run: it goes at once, past the gates, and counts in flight;
--                 reject: it is taken over and set aside, until somebody reschedules or removes it
--
-- Returned with it: the admission under which the job has a slot, null where it has none. A job that took the place of an
-- admitted one has that one's slot, whatever becomes of it: its end gives it back. Under the same limits it runs in it;
-- under others it needs room there as well, and holds both.
--
-- Whoever comes first takes the job over, and once only: the original's row stays noted until Graphile Worker has it no
-- more, also when the copy ran long ago and a crash brings the original back. Its revision is noted with it, because the
-- next job of its key may get the same row.
--
-- Order: the router's lock (only where the partition is new or its limits changed), the partition, limiters ascending,
-- in-flight rows.
create or replace function :DISPATCH_POLICY_SCHEMA._catch_unadmitted(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text, p_batch json, p_unmanaged text, p_now timestamptz,
  out verdict text, out staged_id bigint, out admission bigint
) language plpgsql
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
  v_key text := p_batch #>> '{partitions,0,key}';
begin
  -- one that is taken over, or that no policy governs, holds the slot of the job it replaced until it ends
  admission := (select f.admission from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.job_id = p_job_id);
  if not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id) then
    verdict := 'gone';
    return;
  end if;
  select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_batch ->> 'policy';
  if not v_policy.enabled then
    verdict := 'ungoverned';
    return;
  end if;
  -- a policy nobody has declared yet has no limits to look at; its jobs wait for them
  if v_policy.id is not null and p_unmanaged <> 'reject' and not exists (
    select from :DISPATCH_POLICY_SCHEMA._private_taken_over_jobs o
    where o.job_id = p_job_id and o.revision = p_revision
  ) then
    staged_id := nextval(
      pg_get_serial_sequence(format('%I._private_staged_jobs', :'DISPATCH_POLICY_SCHEMA'), 'id'));
    begin
      verdict := case when :DISPATCH_POLICY_SCHEMA._let_in(
        v_policy, v_key, p_job_id, staged_id, p_revision, p_batch, p_unmanaged, p_now) then 'admitted' end;
    exception when lock_not_available or deadlock_detected then
      verdict := null;   -- it fails for no lock: it would lose an attempt. A copy waits for its turn
    end;
    if verdict = 'admitted' then
      select s.admission into admission from :DISPATCH_POLICY_SCHEMA._start_attempt(
        p_job_id, p_revision, p_attempt, p_pool_id) s;
      perform :DISPATCH_POLICY_SCHEMA._drop_older(p_job_id);
      return;
    end if;
  end if;
  verdict := 'taken_over';
  staged_id := :DISPATCH_POLICY_SCHEMA._take_over(p_job_id, p_revision, p_batch, p_unmanaged = 'reject');
end
$$;
