-- Those of these ids whose jobs are staged under the id that they had in Graphile Worker. A verb looks into staging, then
-- into Graphile Worker. A job that is adopted in between was in neither when it was looked for, so the verb asks again.
create or replace function _adopted_ids(p_ids bigint[]) returns bigint[] language sql volatile as $$
  select array(
    select s.id from staged_jobs s
    where s.id = any(p_ids) and s.id < 1000000000000000 and s.parked_job_id is null);
$$;
