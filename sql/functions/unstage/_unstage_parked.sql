-- Gives the parked ones of these staged jobs their time and priority again, as failed jobs of Graphile Worker that wait
-- for their retry. Returns how many. The caller has locked the staged rows, and deletes them.
--
-- A job that was added with `preserve_run_at` may have replaced a parked job, and kept its time, infinity: nothing would
-- ever run it. It gets the time of the retry, and keeps its own priority. If a newer job of the key is staged, that one
-- takes the row.
--
-- If the next job of a key gets the row while this runs, it raises lock_not_available, and the job is tried again.
create or replace function _unstage_parked(p_ids bigint[]) returns int
language plpgsql volatile as $$
declare
  v_jobs int;
  v_is_raced boolean;
begin
  with there as materialized (
    select s.run_at, s.priority, j.id as job_id, j.revision,
      _is_parked(s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags) as is_parked,
      j.run_at = 'infinity' and j.locked_at is null and j.attempts < j.max_attempts as is_stopped,
      exists (
        select from staged_jobs n where n.job_key = j.key) as is_replaced
    from staged_jobs s
    cross join lateral (   -- one look at the index for each, as in _add_admitted
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = s.parked_job_id limit 1) j
    where s.id = any(p_ids) and s.parked_job_id is not null
  ),
  replaced as (
    insert into replaced_jobs (job_id)
    select t.job_id from there t where t.is_replaced
    on conflict (job_id) do nothing
  ),
  resumed as materialized (
    select j.revision <> t.revision as is_raced
    from there t
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
      array[t.job_id], run_at => t.run_at, priority => case when t.is_parked then t.priority end) j
    where (t.is_parked or t.is_stopped) and not t.is_replaced
  )
  select count(*), coalesce(bool_or(r.is_raced), false) into v_jobs, v_is_raced from resumed r;
  if v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added meanwhile' using errcode = 'lock_not_available';
  end if;
  perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', v_jobs)::text)   -- reschedule_jobs does not
  where v_jobs > 0;
  return v_jobs;
end
$$;
