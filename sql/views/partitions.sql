create or replace view :DISPATCH_POLICY_SCHEMA.partitions as
select p.name as policy, q.key as partition, q.shard, q.context, q.weight,
  -- one index has what is due, another what is not
  ((select count(*) from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.partition_id = q.id and s.due)
    + (select count(*) from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.partition_id = q.id and not s.due))::int
    as staged,
  (select count(*)::int from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f where f.partition_id = q.id) as in_flight,
  q.eligible_at, l.gate as blocked_on, q.denied_reason, q.denied_until, q.paused_until > clock_timestamp() as paused,
  nullif(q.paused_until, '-infinity') as paused_until, nullif(q.held_until, '-infinity') as held_until,
  q.probing, q.stopped_by, q.stop_reason, q.decayed_admits, q.decayed_at, q.mean_work, q.admitted_total,
  q.dropped_total, q.created_at, q.id,
  case when greatest(p.paused_until, q.paused_until) > clock_timestamp() then 'paused'
    when q.held_until > clock_timestamp() then 'held'
    else q.denied_reason end as reason
from :DISPATCH_POLICY_SCHEMA._private_partitions q
join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = q.policy_id
left join :DISPATCH_POLICY_SCHEMA._private_limiters l on l.id = q.blocked_on;

create or replace view :DISPATCH_POLICY_SCHEMA.limiters as
select p.name as policy, l.gate, l.scope_key, l.kind, n.rate, n.per, l.sliding, l.smooth, n.capacity,
  case when n.tokens is null then n.slots::float8 when n.rate <= 0 then 0 else n.tokens end as available, n.tokens,
  l.in_flight, n.cap as max,
  l.lag_ewma_ms, l.current_max, l.wake_at, l.id
from :DISPATCH_POLICY_SCHEMA._private_limiters l
join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = l.policy_id
cross join lateral :DISPATCH_POLICY_SCHEMA._limiter_shown(l.policy_id, l.id) n;

create or replace view :DISPATCH_POLICY_SCHEMA.in_flight_jobs as
select f.job_id, f.staged_id, p.name as policy, q.key as partition, f.admitted_at, j.locked_at as started_at,
  j.locked_by as worker_id, f.cost, j.task_identifier, j.attempts::int
from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = f.policy_id
join :DISPATCH_POLICY_SCHEMA._private_partitions q on q.id = f.partition_id
left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id;

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

create or replace view :DISPATCH_POLICY_SCHEMA.workers as
select w.pool_id, w.slots, w.tasks, w.host, w.pid, w.started_at, w.heartbeat_at, w.stale_at > clock_timestamp() as alive
from :DISPATCH_POLICY_SCHEMA._private_workers w where w.buried_at is null;

create or replace view :DISPATCH_POLICY_SCHEMA.audit as
select a.* from :DISPATCH_POLICY_SCHEMA._private_audit a;
