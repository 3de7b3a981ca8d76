-- What stops jobs by name, in force now: pauses of all policies, of a policy and of a partition, holds, and open breakers.
create or replace view :DISPATCH_POLICY_SCHEMA.stops as
select null::text as policy, null::text as partition, 'pause' as kind, nullif(a.paused_until, 'infinity') as until,
  a.paused_by as by, a.pause_reason as reason, true as seen, a.paused_at as since
from all_policies a where a.paused_until > statement_timestamp()
union all
select p.name, null, 'pause', nullif(p.paused_until, 'infinity'), p.paused_by, p.pause_reason, true, p.paused_at
from policies p where p.paused_until > statement_timestamp()
union all
select p.name, q.key, 'pause', nullif(q.paused_until, 'infinity'), q.stopped_by, q.stop_reason, q.arrival_id > 0,
  q.stopped_at
from partitions q
join policies p on p.id = q.policy_id
where q.paused_until > '-infinity' and q.paused_until > statement_timestamp()   -- the first lets it use the index
  and (not q.laned or not exists (select from partitions s
    where s.id >= _marked_id(_mark_of(q.id), '0') and s.id < q.id and s.policy_id = q.policy_id and s.key = q.key))
union all
select p.name, q.key, 'hold', q.held_until, q.stopped_by, q.stop_reason, q.arrival_id > 0, q.stopped_at
from partitions q
join policies p on p.id = q.policy_id
where q.held_until > '-infinity' and q.held_until > statement_timestamp()
  and (not q.laned or not exists (select from partitions s
    where s.id >= _marked_id(_mark_of(q.id), '0') and s.id < q.id and s.policy_id = q.policy_id and s.key = q.key))
union all
select p.name, q.key, 'breaker', q.breaker_until, 'breaker', q.breaker_reason, true, q.breaker_at
from partitions q
join policies p on p.id = q.policy_id
where q.breaker_until > '-infinity' and q.breaker_until > statement_timestamp()
  and (not q.laned or not exists (select from partitions s
    where s.id >= _marked_id(_mark_of(q.id), '0') and s.id < q.id and s.policy_id = q.policy_id and s.key = q.key))
union all
-- those that the router has not applied yet
select a.policy, a.key, case when a.pause ->> 'until' is not null then 'pause' else 'hold' end,
  nullif(coalesce(a.pause ->> 'until', a.pause ->> 'held')::timestamptz, 'infinity'), a.pause ->> 'by', a.pause ->> 'reason',
  false, (a.pause ->> 'at')::timestamptz
from arrivals a
where a.pause is not null and coalesce(a.pause ->> 'until', a.pause ->> 'held')::timestamptz > statement_timestamp();

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column stops.policy is 'Name of the policy; null: all policies, also those to come.';
comment on column stops.partition is 'Key of the partition; null: the whole policy.';
comment on column stops.kind is 'pause, hold or breaker.';
comment on column stops.until is 'End; null: until resume.';
comment on column stops.by is 'Who stopped it.';
comment on column stops.reason is 'Why they did.';
comment on column stops.seen is
  'False: no job of the partition has come yet. The stop waits for the first.';
comment on column stops.since is 'When they did; of a breaker: when it opened last.';
