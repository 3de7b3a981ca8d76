-- What each gate has left, by scope. A throttle's `available` are tokens, any other gate's are slots.
create or replace view :DISPATCH_POLICY_SCHEMA.limiters as
select p.name as policy, l.gate, l.scope_key, l.kind, n.rate, n.per,
  (l.numbers).sliding is true as sliding, (l.numbers).smooth is true as smooth, n.capacity,
  case when n.tokens is null then n.slots::float8 when n.rate <= 0 then 0 else n.tokens end as available, n.tokens,
  l.in_flight, n.cap as max,
  l.lag_ewma_ms, l.current_max, l.wake_at, l.id
from :DISPATCH_POLICY_SCHEMA._private_limiters l
join :DISPATCH_POLICY_SCHEMA._private_policies p on p.id = l.policy_id
cross join lateral :DISPATCH_POLICY_SCHEMA._limiter_shown(l.policy_id, l.id) n;
