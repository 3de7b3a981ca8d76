-- The policies that were declared. One that is orphaned has no worker that runs its tasks.
create or replace view :DISPATCH_POLICY_SCHEMA.policies as
select p.name as policy, p.version, p.definition, p.enabled, p.paused_until > clock_timestamp() as paused,
  nullif(p.paused_until, '-infinity') as paused_until, p.paused_by, p.pause_reason,
  (select count(*)::int from :DISPATCH_POLICY_SCHEMA._private_partitions q where q.policy_id = p.id) as partitions,
  (select coalesce(sum(l.in_flight), 0)::int from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = p.ahead_limiter_id) as in_flight,
  (select count(*)::int from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s
    where s.task_identifier in (select t.task_identifier from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t
      where t.policy_id = p.id)) as staged,
  not exists (select from :DISPATCH_POLICY_SCHEMA._private_workers w
    where w.stale_at > clock_timestamp() and w.tasks && array(
      select t.task_identifier from :DISPATCH_POLICY_SCHEMA._private_policy_tasks t where t.policy_id = p.id)) as orphaned
from :DISPATCH_POLICY_SCHEMA._private_policies p;
