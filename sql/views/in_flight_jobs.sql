-- Jobs that hold slots: admitted, and not released yet.
create or replace view :DISPATCH_POLICY_SCHEMA.in_flight_jobs as
select f.job_id, f.staged_id, p.name as policy, q.key as partition, f.admitted_at, j.locked_at as started_at,
  j.locked_by as worker_id, f.cost, j.task_identifier, j.attempts::int
from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = f.partition_id
left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id;
