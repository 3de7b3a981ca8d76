-- Jobs that wait for their gates, and failed ones that wait for their retry (those have a `job_id`).
create or replace view :DISPATCH_POLICY_SCHEMA.staged_jobs as
select s.id, coalesce(p.name, t.name) as policy, coalesce(q.key, a.key) as partition, s.task_identifier,
  s.parked_job_id as job_id, s.queue_name, s.run_at, s.priority::int, s.max_attempts::int, s.job_key, s.flags, s.cost,
  s.payload, s.created_at,
  s.error, s.failures::int, s.retry_at,
  case when s.partition_id is null then 'waiting_key' when s.retry_at is not null then 'set_aside'
    when not s.due and s.run_at > clock_timestamp() then 'not_due'
    when greatest(p.paused_until, q.paused_until) > clock_timestamp() then 'paused'
    when q.held_until > clock_timestamp() then 'held'
    else q.denied_reason end as reason
from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
left join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = s.partition_id
left join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
left join lateral (
  select a.key from :DISPATCH_POLICY_SCHEMA._private_arrivals a where q.id is null and a.partition_id = s.partition_id limit 1
) a on true
left join lateral (
  select x.name from :DISPATCH_POLICY_SCHEMA._private_policy_tasks y
  join :DISPATCH_POLICY_SCHEMA._private_policies x on x.id = y.policy_id
  where p.id is null and y.task_identifier = s.task_identifier
) t on true;
