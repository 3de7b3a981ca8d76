-- Staged jobs and Graphile Worker's together. A staged job's id starts at 10^15. One that waits for its retry is parked:
-- Graphile Worker's, with the time and priority it has in staging. One that has no attempts left is failed.
create or replace view :DISPATCH_POLICY_SCHEMA.jobs as
select s.id, 'staged'::text as state, s.task_identifier, s.policy, s.partition, s.queue_name, s.priority, s.run_at,
  0 as attempts, coalesce(s.max_attempts, 25) as max_attempts, s.error as last_error, s.created_at, s.job_key as key,
  null::timestamptz as locked_at, null::text as locked_by, s.id as staged_id
from :DISPATCH_POLICY_SCHEMA.staged_jobs s where s.job_id is null
union all
select j.id,
  case when j.locked_at is not null then 'running' when s.id is not null then 'parked'
    when j.attempts >= j.max_attempts then 'failed' when j.run_at = 'infinity' then 'parked' else 'ready' end,
  j.task_identifier, p.name, q.key, j.queue_name, coalesce(s.priority, j.priority)::int, coalesce(s.run_at, j.run_at),
  j.attempts::int, j.max_attempts::int, j.last_error, j.created_at, j.key, j.locked_at, j.locked_by,
  coalesce(f.staged_id, s.id)
from :GRAPHILE_WORKER_SCHEMA.jobs j
left join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.job_id = j.id
left join :DISPATCH_POLICY_SCHEMA._private_staged_jobs s on s.parked_job_id = j.id
left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = coalesce(f.partition_id, s.partition_id)
left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id;
