-- A page of the jobs in flight of these policies: whose slots nobody will free.
--
--   p_after      the page begins behind this job
--   next_after   where the next page begins; 0: at the first job again
--   known        the policies that have a job on this page
--   lost         json array, see _lost_slots
--   ours         jobs that run in worker pools which are known
--   foreign_ids  jobs that run in others
create or replace function _look_for_lost(
  p_policies text[], p_after bigint, p_limit int, out next_after bigint, out known text[], out lost json,
  out ours bigint[], out foreign_ids bigint[]
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
as $$
declare
  v_page bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id > p_after and f.policy_id in (
      select p.id from policies p where p.name = any(p_policies))
    order by f.job_id limit p_limit);
begin
  next_after := case when cardinality(v_page) = p_limit then v_page[p_limit] else 0 end;
  known := array(
    select distinct p.name from in_flight_jobs f
    join policies p on p.id = f.policy_id where f.job_id = any(v_page));
  lost := (
    select coalesce(json_agg(json_build_object(
      'job', l.job_id::text, 'admission', l.admission::text, 'attempt', l.attempt, 'ok', l.ok, 'retry', l.retry,
      'policy', p.name)), '[]')
    from _lost_slots(v_page) l
    join policies p on p.id = l.policy_id);
  select coalesce(array_agg(j.id) filter (where w.pool_id is not null), '{}'),
    coalesce(array_agg(j.id) filter (where w.pool_id is null), '{}')
  into ours, foreign_ids
  from :GRAPHILE_WORKER_SCHEMA.jobs j
  left join workers w on w.pool_id = j.locked_by
  where j.id = any(v_page) and j.locked_at is not null;
end
$$;
