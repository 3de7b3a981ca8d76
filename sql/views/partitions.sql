-- The partitions of each policy: what waits there, and why. Of one with lanes (partitions.laned) the row is that of the lane that
-- goes next, with the jobs of all.
create or replace view :DISPATCH_POLICY_SCHEMA.partitions as
select p.name as policy, q.key as partition, q.shard, q.context, _plain_weight(q.weight) as weight, _class_of(1 / q.weight) as class,
  case when q.laned
    then w.staged + coalesce((select sum(x.jobs) from arrivals x where x.partition_id = any(w.ids)), 0)
    else q.staged + coalesce(a.jobs, 0) end::int as staged,
  case when q.laned then (select count(*)::int from in_flight_jobs x where x.partition_id = any(w.ids))
    else coalesce(f.jobs, 0) end as in_flight,
  q.eligible_at, case when p.paused_until <= statement_timestamp() then l.gate end as blocked_on, q.denied_reason, q.denied_until, q.paused_until > statement_timestamp() as paused,
  nullif(q.paused_until, '-infinity') as paused_until, nullif(q.held_until, '-infinity') as held_until,
  nullif(q.breaker_until, '-infinity') as breaker_until, q.breaker_reason,
  q.probing, q.stopped_by, q.stop_reason, q.decayed_admits, q.decayed_at, q.mean_work,
  case when q.laned then w.admitted_total else q.admitted_total end as admitted_total,
  case when q.laned then w.dropped_total else q.dropped_total end as dropped_total,
  case when q.laned then w.created_at else q.created_at end as created_at, q.id,
  _shown_reason(
    p.paused_until, q.paused_until, q.held_until, q.breaker_until, q.denied_reason) as reason,
  nullif(case when q.laned then w.admitted_at else q.admitted_at end, '-infinity') as last_admitted_at,
  -- at a steady pace r the decayed count is r * half-life / ln 2
  case when not p.fair_by_work
    then _decayed(q.decayed_admits, q.decayed_at, p.half_life, statement_timestamp()) * ln(2) / p.half_life * 60 end
    as admits_a_minute,
  -- a head that a sweep has repaired has no time, and due_at is that of the last pass while due jobs stay
  nullif(least(a.due_at, case when q.staged > 0 then least(nullif(q.head_run_at, '-infinity'), q.due_at) end), 'infinity')
    as next_due_at
from partitions q
join policies p on p.id = q.policy_id
left join limiters l on l.id = q.blocked_on
-- once for all: asked for each partition, 50 partitions beside 10,000 jobs in flight took 46 s
left join (
  select x.partition_id, count(*)::int as jobs from in_flight_jobs x group by x.partition_id
) f on f.partition_id = q.id
-- what the router has not counted yet
left join (
  select x.partition_id, sum(x.jobs)::int as jobs, min(x.due_at) filter (where x.jobs > 0) as due_at
  from arrivals x group by x.partition_id
) a on a.partition_id = q.id
left join lateral (   -- all of its lanes, see _lanes_beside
  select array_agg(s.id) as ids, sum(s.staged) as staged, sum(s.admitted_total)::bigint as admitted_total,
    sum(s.dropped_total)::bigint as dropped_total, min(s.created_at) as created_at, max(s.admitted_at) as admitted_at
  from partitions s
  where q.laned and s.id between _marked_id(_mark_of(q.id), '0') and _marked_id(_mark_of(q.id), 'f')
    and s.policy_id = q.policy_id and s.key = q.key
) w on true
-- Asked by itself, and only of one with lanes: as one of the sums above, a page of 100,000 partitions took twice as long
where not q.laned or q.id = (   -- as _first_lane
  select s.id from partitions s
  where s.id between _marked_id(_mark_of(q.id), '0') and _marked_id(_mark_of(q.id), 'f')
    and s.policy_id = q.policy_id and s.key = q.key
  order by s.due_at <= statement_timestamp() desc, s.staged > 0 desc, _class_of(1 / s.weight), s.eligible_at, s.head_priority, s.head_run_at,
    s.head_id, s.id limit 1);

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column partitions.policy is 'Name of the policy.';
comment on column partitions.partition is 'Key of the partition.';
comment on column partitions.shard is 'Its shard, which has a tick loop of its own.';
comment on column partitions.context is 'What the policy''s context gave for the last job.';
comment on column partitions.weight is 'Its share in relation to other partitions.';
comment on column partitions.class is 'The class of its next job; lower ones go first.';
comment on column partitions.staged is
  'Jobs that wait in staging, those that are not due yet among them.';
comment on column partitions.in_flight is 'Jobs that were admitted and not released yet.';
comment on column partitions.eligible_at is
  'From when a pass may claim it; infinity: not until something changes.';
comment on column partitions.blocked_on is
  'Name of the gate that reason is about: of several without room the first, from narrow to broad. Null: it is about none.';
comment on column partitions.denied_reason is
  'Why the last pass left it due jobs. A pause or hold may have come since: see reason.';
comment on column partitions.denied_until is
  'When the gate that denied it has room again; -infinity: nothing denies it; infinity: it depends on other jobs.';
comment on column partitions.paused is 'Whether it is paused itself.';
comment on column partitions.paused_until is
  'End of its own pause, which may be over; null: none.';
comment on column partitions.held_until is 'End of its hold, which may be over; null: none.';
comment on column partitions.breaker_until is
  'End of its breaker''s cooldown, which may be over; null: none.';
comment on column partitions.breaker_reason is 'What opened its breaker last.';
comment on column partitions.probing is
  'True after a hold: one job goes at a time, until one has succeeded.';
comment on column partitions.stopped_by is
  'Who paused or held it. Of two holds it is who set the one that ends later.';
comment on column partitions.stop_reason is 'Why they did.';
comment on column partitions.decayed_admits is
  'What counts against its share as of decayed_at: jobs, or if fairness is by work seconds that they ran.';
comment on column partitions.decayed_at is 'The time that decayed_admits is of.';
comment on column partitions.mean_work is
  'Seconds that its jobs ran lately, on average; null unless fairness is by work.';
comment on column partitions.admitted_total is 'Jobs admitted since it was made.';
comment on column partitions.dropped_total is
  'Jobs dropped since it was made, by maxPending, whenBusy or uniqueFor, or because they expired.';
comment on column partitions.created_at is 'When it was made.';
comment on column partitions.id is 'A hash of policy and key; of a lane, it ends in one of its keys.';
comment on column partitions.reason is
  'Why it waits, pauses and holds included; null: nothing holds it back. docs/operating.md explains the reasons.';
comment on column partitions.last_admitted_at is 'When a job of it was admitted last; null: none was.';
comment on column partitions.admits_a_minute is
  'Jobs admitted a minute, lately, by the half-life of its policy''s fairness. Null if fairness is by work.';
comment on column partitions.next_due_at is 'When its next job is due, or since when it is; null: no job waits.';
