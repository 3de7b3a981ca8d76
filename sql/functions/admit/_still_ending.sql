-- Those of these released jobs that Graphile Worker still has as they were at their end. A job that runs again counts as in
-- flight.
create or replace function _still_ending(p_job_ids bigint[]) returns bigint[]
language plpgsql stable as $$
begin
  if p_job_ids = '{}' then
    return p_job_ids;
  end if;
  return array(
    select u.id from unnest(p_job_ids) u (id)
    cross join lateral (   -- one look at the index for each job
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null limit 1) j
    where not exists (
      select from in_flight_jobs f where f.job_id = u.id));
end
$$;
