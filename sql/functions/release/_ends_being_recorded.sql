-- The jobs whose success Graphile Worker is recording at this moment. Called before the
-- limiters are locked, so that nobody waits for it. _still_ending checks again which of them are left.
create or replace function _ends_being_recorded(p_jobs finished_job[]) returns bigint[] language plpgsql as $$
begin
  return array(
    select f.job from unnest(p_jobs) f
    cross join lateral (   -- one look at the index for each job
      select from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = f.job and j.attempts = f.attempt and j.locked_at is not null limit 1) j
    where f.ok and f.ends);
end
$$;
