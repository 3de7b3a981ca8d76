-- Counts in their groups the jobs that left staging or Graphile Worker's rows without running, in a hand-over. They lost their
-- place to a newer job of their key, or the row of a parked one is not there any more. Called before the new in-flight rows
-- are written.
--
-- The danger: somebody retried a parked job by hand. Its row leaves staging without an admission, but the job runs or waits in
-- Graphile Worker. It counted as replaced, and the callback came before its end. The cure: a job whose flag is still in the
-- row goes on, until Graphile Worker will not run it any more.
create or replace function :DISPATCH_POLICY_SCHEMA._admit_in_groups(p_admissions :DISPATCH_POLICY_SCHEMA._private_admission[])
returns void language plpgsql volatile as $$
declare
  v_staged_ids bigint[];
  v_outcomes text[];
begin
  select array_agg(e.staged_id), array_agg(e.outcome) into v_staged_ids, v_outcomes
  from (
    select f.staged_id, 'replaced' as outcome
    from unnest(p_admissions) a
    join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.job_id = a.job_id and f.staged_id <> a.staged_id
    where a.counted and f.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted))
    union all
    select a.staged_id, case
        when j.id is null and m.job_id is not null then 'gone'
        when (:DISPATCH_POLICY_SCHEMA._staged_id_of(j.flags) = a.staged_id) is not true then 'replaced'
        else :DISPATCH_POLICY_SCHEMA._outcome(null, false, j.attempts, j.max_attempts, j.locked_at is not null) end
    from unnest(p_admissions) a
    join :DISPATCH_POLICY_SCHEMA._private_group_jobs m on m.staged_id = a.staged_id
    left join lateral (   -- one look at the index for each
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = m.job_id limit 1) j on true
    where not a.admitted and m.staged_id = any(array(select b.staged_id from unnest(p_admissions) b where not b.admitted))
  ) e where e.outcome is not null;
  if v_staged_ids is not null then
    perform :DISPATCH_POLICY_SCHEMA._end_in_groups(v_staged_ids, null, v_outcomes);
  end if;
end
$$;
