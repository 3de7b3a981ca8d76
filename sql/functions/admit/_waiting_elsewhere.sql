-- How many of a policy's jobs in flight use no slot although slots may be free, at most 100. They wait in Graphile Worker for
-- their named queue, for a worker that takes their flags, or for one that has their task.
--
-- A job behind another of its queue certainly waits. Of the others nobody knows: workers do not say which flags they refuse,
-- and a queue may be busy with a job of somebody else. So a job counts if it has waited for longer than jobs ahead do, and
-- no job of its task and flags runs. If one runs, the job waits for a slot like others.
create or replace function _waiting_elsewhere(
  p_policy_id int, p_after float8, p_now timestamptz
) returns int language plpgsql stable as $$
begin
  return (
    with job as materialized (
      select j.id, j.queue_name, j.locked_at is not null as runs, f.admitted_at,
        j.task_identifier || ' ' || coalesce((
          select string_agg(k, ' ' order by k) from jsonb_object_keys(j.flags) k
          where not _is_own_flag(k)), '') || ' ' || (j.queue_name is not null) as kind
      from in_flight_jobs f
      cross join lateral (   -- one look at the index for each job
        select * from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
      where f.policy_id = p_policy_id
    ),
    placed as (
      select j.*, j.queue_name is not null
          and row_number() over (partition by j.queue_name order by j.runs desc, j.id) > 1 as is_behind,
        bool_or(j.runs) over (partition by j.kind) as kind_runs
      from job j
    )
    select least(count(*), 100) from placed p
    where not p.runs and (p.is_behind
      or (not p.kind_runs and p.admitted_at < p_now - make_interval(secs => p_after))));
end
$$;
