-- Jobs that occupy slots: admitted, and not released yet.
create or replace view :DISPATCH_POLICY_SCHEMA.in_flight_jobs as
select f.job_id, f.staged_id, p.name as policy, q.key as partition, f.admitted_at, j.locked_at as started_at,
  j.locked_by as worker_id, f.cost, j.task_identifier, j.attempts::int, f.cancelled_at, f.cancelled_by, f.cancel_reason
from in_flight_jobs f
join policies p on p.id = f.policy_id
join partitions q on q.id = f.partition_id
left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column in_flight_jobs.job_id is 'Graphile Worker''s id.';
comment on column in_flight_jobs.staged_id is 'The id it had in staging.';
comment on column in_flight_jobs.policy is 'Name of the policy.';
comment on column in_flight_jobs.partition is 'Key of the partition.';
comment on column in_flight_jobs.admitted_at is 'When it was admitted.';
comment on column in_flight_jobs.started_at is 'When a worker fetched it; null: not yet.';
comment on column in_flight_jobs.worker_id is 'The worker that runs it.';
comment on column in_flight_jobs.cost is 'Tokens it took from each throttle.';
comment on column in_flight_jobs.task_identifier is 'Its task.';
comment on column in_flight_jobs.attempts is
  'How many times it was started; null: Graphile Worker has it no more, and a sweep frees its slots.';
comment on column in_flight_jobs.cancelled_at is
  'When an operator, or a newer job of its key, cancelled it; null: nobody has.';
comment on column in_flight_jobs.cancelled_by is 'Who cancelled it.';
comment on column in_flight_jobs.cancel_reason is 'Why; null: nobody said.';
