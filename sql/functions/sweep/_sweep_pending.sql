-- Counts the backlogs of bounded policies again, in one snapshot, and finds the jobs that may be dropped. Returns for how
-- many policies the count was wrong.
create or replace function _sweep_pending() returns int language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with repaired as (
    insert into pending (policy, jobs)
    select p.name, t.jobs - c.jobs from policies p
    cross join lateral (
      select count(*) as jobs from staged_jobs s
      where s.task_identifier in (
        select x.task_identifier from policy_tasks x where x.policy_id = p.id)
    ) t
    cross join lateral (
      select coalesce(sum(d.jobs), 0) as jobs from pending d where d.policy = p.name
    ) c
    where p.max_pending_in_all is not null and t.jobs <> c.jobs
    returning 1
  ),
  -- jobs that were staged before their policy dropped the oldest
  made_droppable as (
    update staged_jobs s set droppable = true
    where s.id in (
      select x.id from policies p
      join policy_tasks t on t.policy_id = p.id
      join staged_jobs x on x.task_identifier = t.task_identifier
      where _is_droppable(p.when_full, p.max_pending_in_all)
        and not x.droppable and x.parked_job_id is null
      for update of x skip locked)
  )
  select count(*)::int from repaired;
$$;
