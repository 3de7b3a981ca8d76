-- Fails replaced parked jobs of these keys for good. Such a job's row was kept for a newer job of its key. If the newer job
-- leaves staging without running, nothing would ever run or end the row. Returns how many it failed.
create or replace function _give_up_replaced(p_job_keys text[]) returns int
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_revisions int[];
begin
  select array_agg(j.id), array_agg(j.revision) into v_ids, v_revisions
  from unnest(p_job_keys) u (key)
  cross join lateral (
    select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x
    where x.key = u.key and x.run_at = 'infinity' and x.locked_at is null and x.attempts < x.max_attempts
      and (_is_ours(x.flags, x.created_at, x.key) or exists (
        select from replaced_jobs r where r.job_id = x.id))
    limit 1) j
  where not exists (
      select from staged_jobs s where s.parked_job_id = j.id or s.job_key = u.key)
    and not exists (select from in_flight_jobs f where f.job_id = j.id);
  if v_ids is null then
    return 0;
  end if;
  v_ids := _lock_in_revision(v_ids, v_revisions);
  return (
    select count(*) from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
      v_ids, _replaced_error()));
end
$$;
