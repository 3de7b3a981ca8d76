-- Counts in their groups the jobs that left staging or Graphile Worker's rows without running, in a pass. They lost their
-- place to a newer job of their key, or the row of a parked one is not there any more. Called before the new in-flight rows
-- are written.
create or replace function _admit_in_groups(p_admissions admission[])
returns void language plpgsql volatile as $$
declare
  v_staged_ids bigint[];
  v_outcomes text[];
begin
  select array_agg(e.staged_id), array_agg(e.outcome) into v_staged_ids, v_outcomes
  from (
    select f.staged_id, 'replaced' as outcome
    from unnest(p_admissions) a
    join in_flight_jobs f on f.job_id = a.job_id and f.staged_id <> a.staged_id
    where a.counted and f.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted))
    union all
    select a.staged_id, _outcome_of_staged(a.staged_id, a.job_id, a.revision)
    from unnest(p_admissions) a
    join group_jobs m on m.staged_id = a.staged_id
    where not a.admitted and m.staged_id = any(array(select b.staged_id from unnest(p_admissions) b where not b.admitted))
  ) e where e.outcome is not null;
  if v_staged_ids is not null then
    perform _end_in_groups(v_staged_ids, null, v_outcomes);
  end if;
end
$$;
