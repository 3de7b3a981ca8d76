/**
 * SQL: whether jobs of policy `p` wait in staging, by looks at indexes that mostly touch one entry each. Not those that wait
 * for a slot: while they do, others are in flight. A paused partition is not eligible for as long as that lasts. A partition whose jobs were unstaged keeps the times that they had, if
 * nobody ticks its policy. So its count is asked as well.
 */
export const HAS_WAITING = `(
  exists (select from :DISPATCH_POLICY_INTERNAL.partitions q
    where q.policy_id = p.id and q.eligible_at < 'infinity' and not q.ready and q.staged > 0)
  or exists (select from :DISPATCH_POLICY_INTERNAL.partitions q where q.policy_id = p.id and q.ready and q.staged > 0)
  or exists (select from :DISPATCH_POLICY_INTERNAL.partitions q
    where q.policy_id = p.id and q.paused_until > '-infinity' and q.staged > 0)
  or exists (select from :DISPATCH_POLICY_INTERNAL.arrivals a where a.policy = p.name and a.jobs > 0)
  or exists (select from :DISPATCH_POLICY_INTERNAL.keyless_jobs k where k.policy = p.name))`;

/** SQL: how many jobs of policy `p` are in flight. */
export const IN_FLIGHT = `coalesce((
  select l.in_flight from :DISPATCH_POLICY_INTERNAL.limiters l where l.id = p.ahead_limiter_id), 0)`;

/** SQL: whether a job of policy `p` was fetched or ended in the last five minutes: a host that is no worker pool may run it. */
export const RUNS_ELSEWHERE = ":DISPATCH_POLICY_INTERNAL._runs_elsewhere(p.id)";

/** SQL: the live worker pools. */
export const LIVE = `live as materialized (
  select w.pool_id, w.slots, w.tasks, w.definitions from :DISPATCH_POLICY_INTERNAL.workers w
  where w.stale_at > clock_timestamp() and not w.ended)`;
