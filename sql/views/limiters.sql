-- What each gate has left, by scope. A throttle's `available` are tokens, any other gate's are slots.
create or replace view :DISPATCH_POLICY_SCHEMA.limiters as
select p.name as policy, l.gate, l.scope_key, l.kind, n.rate, n.per,
  (l.numbers).sliding is true as sliding, (l.numbers).smooth is true as smooth, n.capacity,
  case when n.tokens is null then n.slots::float8 when n.rate <= 0 then 0 else n.tokens end as available, n.tokens,
  l.in_flight, n.cap as max,
  l.lag_ewma_ms, l.current_max, l.wake_at, l.id, (l.numbers).calendar,
  (l.numbers).shadow is true as shadow, n.share as max_per_worker, n.pools as workers
from limiters l
join policies p on p.id = l.policy_id
cross join lateral :DISPATCH_POLICY_SCHEMA.limiter_shown(l.policy_id, l.id) n;

set local search_path = :DISPATCH_POLICY_SCHEMA, pg_temp;
comment on column limiters.policy is 'Name of the policy.';
comment on column limiters.gate is
  'Name of the gate; ahead: the bound that keeps jobs just ahead of the worker slots.';
comment on column limiters.scope_key is
  'What it counts over: a partition''s key, a key of the gate''s scope, or an empty text for the whole policy.';
comment on column limiters.kind is 'throttle, concurrency, adaptive_concurrency or ahead.';
comment on column limiters.rate is
  'Throttle: tokens that come in per seconds, overrides applied.';
comment on column limiters.per is
  'Throttle: seconds in which rate tokens come, overrides applied.';
comment on column limiters.sliding is 'Throttle: whether it is a sliding window.';
comment on column limiters.smooth is 'Throttle: whether jobs go evenly spaced.';
comment on column limiters.capacity is 'Throttle: tokens of a full bucket or an unused window.';
comment on column limiters.available is
  'What is left now: tokens of a throttle, slots of any other gate. Null: no bound.';
comment on column limiters.tokens is 'Throttle: tokens that are left now.';
comment on column limiters.in_flight is
  'Slots that are occupied. Of a throttle: those from when it was a cap under its name; else 0.';
comment on column limiters.max is 'Slots, overrides applied; null: no bound. A job takes one, or what its gate''s cost says.';
comment on column limiters.lag_ewma_ms is
  'Adaptive concurrency: milliseconds of lag of the jobs that finished lately, as a moving average.';
comment on column limiters.current_max is
  'Adaptive concurrency: jobs at once that it has learnt to allow.';
comment on column limiters.wake_at is
  'When waiting partitions are looked at again; null: when something changes.';
comment on column limiters.id is 'Number of the limiter.';
comment on column limiters.calendar is
  'Throttle: the unit and the time zone of a calendar window, such as day America/New_York. Else null.';
comment on column limiters.shadow is
  'Whether it is of a shadow gate, which holds nothing back.';
comment on column limiters.max_per_worker is
  'Of a gate with perWorker: how many jobs each worker pool may run at once, overrides applied. Else null.';
comment on column limiters.workers is
  'Of a gate with perWorker: the live worker pools that have a task of the policy, at least 1. Else null.';
