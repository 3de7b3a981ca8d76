-- Appends how many of the released jobs (`p_gone`) ended in each partition and how long they ran, for policies that record
-- their load.
create or replace function _record_runs(
  p_gone in_flight_jobs[], p_jobs finished_job[],
  p_now timestamptz
) returns void language plpgsql volatile as $$   -- planned as _free_slots
begin
  insert into activity (policy_id, at, load)
  select r.policy_id, p_now, array_agg(row(r.policy_id, r.partition_id, p_now, 0, 0, 0, r.jobs, r.seconds)
    ::load_change)
  from (
    select g.policy_id, g.partition_id, count(*) as jobs, sum(_seconds(f.duration_ms)) as seconds
    from unnest(p_gone) g
    join unnest(p_jobs) f on f.job = g.job_id and f.ok is not null and f.duration_ms is not null
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
    where g.policy_id in (
      select p.id from policies p where p.load_kept_for is not null)
    group by g.policy_id, g.partition_id
  ) r group by r.policy_id;
end
$$;
