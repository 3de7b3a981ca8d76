-- Writes to the in-flight rows of admitted jobs which places they had.
create or replace function _keep_places(
  p_places place[], p_admissions admission[]
) returns void language sql volatile as $$
  update in_flight_jobs f set place = p
  from unnest(p_admissions) a join unnest(p_places) p on p.staged_id = a.staged_id
  where a.admitted and f.job_id = a.job_id
    and f.job_id = any(array(select x.job_id from unnest(p_admissions) x where x.admitted));
$$;
