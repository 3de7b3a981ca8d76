-- Adds those of these staged jobs to Graphile Worker that it does not have yet, as they were added, without a flag of this
-- package. The caller has locked the staged rows, and deletes them.
--
--   jobs                   how many it added
--   staged_ids, job_ids    those of jobs in groups: of each the id that it had, and the one it has now. These are added one by
--     one, because Graphile Worker returns the jobs of a call in no certain order
--
-- The newest job of a key counts, as in _add_admitted. So a staged job leaves without a trace if Graphile Worker has a later
-- one of its key. If one is added while this runs, or starts, it raises lock_not_available, and the job is tried again.
create or replace function _unstage_new(
  p_ids bigint[], out jobs int, out staged_ids bigint[], out job_ids bigint[]
) language plpgsql volatile as $$
declare
  v_missing int;
  v_is_raced boolean;
begin
  with older as materialized (
    select s.*, k.id as seen_id, k.next_revision, (
        select m.staged_id from group_jobs m where m.staged_id = s.id limit 1) as grouped_id
    from staged_jobs s
    left join lateral _job_of_key(s.job_key, s.known_job_id, s.known_revision) k on true
    where s.id = any(p_ids) and s.parked_job_id is null and k.is_newer is not true
  ),
  specs as materialized (
    select o.preserve_run_at, o.grouped_id, count(*) as jobs, array_agg(row(
        o.task_identifier, o.payload, o.queue_name, o.run_at, o.max_attempts, o.job_key, o.priority,
        array(select f from unnest(o.flags) f where not _is_own_flag(f))
      ):::GRAPHILE_WORKER_SCHEMA.job_spec order by o.job_key nulls first, o.id) as specs
    from (
      select x.*, _portion(sum(octet_length(x.payload::text)) over (
        order by x.job_key nulls first, x.id rows between unbounded preceding and 1 preceding)) as portion
      from older x) o
    group by o.preserve_run_at, o.grouped_id, o.portion order by o.preserve_run_at, o.grouped_id, o.portion
  ),
  added as materialized (
    select j.id, s.grouped_id, j.key, j.revision, s.preserve_run_at and j.key is not null and j.run_at = 'infinity' as keeps_infinity
    from specs s cross join lateral :GRAPHILE_WORKER_SCHEMA.add_jobs(s.specs, s.preserve_run_at) j
  ),
  -- a job that keeps the time of the one it replaces may have replaced a parked one: nothing would ever run it
  resumed as materialized (
    select j.id from added a join older o on o.job_key = a.key
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[a.id], run_at => o.run_at) j
    where a.keeps_infinity
  ),
  -- the row of a parked job that was replaced has its successor now
  succeeded as (
    delete from replaced_jobs r where r.job_id in (select a.id from added a)
  )
  select (select count(*) from added), coalesce((select sum(s.jobs) from specs s), 0) - (select count(*) from added),
    -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
    (select count(*) from resumed) >= 0 and exists (
      select from added a join older o on o.job_key = a.key
      where _is_raced(o.seen_id, o.next_revision, a.id, a.revision)),
    array(select a.grouped_id from added a where a.grouped_id is not null order by a.id),
    array(select a.id from added a where a.grouped_id is not null order by a.id)
  into jobs, v_missing, v_is_raced, staged_ids, job_ids;
  if v_missing > 0 or v_is_raced then
    raise exception 'dispatch_policy: a job of this key was added or started meanwhile'
      using errcode = 'lock_not_available';
  end if;
end
$$;
