-- The partitions of each policy: what waits there, and why.
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
