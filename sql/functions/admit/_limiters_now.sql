-- What each of these limiters has left at `p_now`, overrides applied: `slots` of a cap, `tokens` of a bucket (the
-- other is null; at a rate of zero or less nothing goes, whatever the bucket holds). Callers hold the limiters' locks,
-- taken in an earlier statement, when they decide by it.
-- `spent` is null but for sliding windows, whose tokens are what they have left.
-- `p_bounded` false: the ahead bound does not count (an explicit tick is not kept just ahead of the workers).
-- `measured`: jobs of the policy that finished a second, where it is time to say so anew.
-- `remembered`: for how many seconds a window has to know what was spent: an override's may be shorter than its own, and
-- so may a definition's than the one before, which a deployment may bring back.
-- `ending`: released jobs that Graphile Worker still has, for which the ahead bound has no room.
create or replace function :DISPATCH_POLICY_SCHEMA._limiters_now(
  p_policy_id int, p_limiter_ids bigint[], p_now timestamptz, p_bounded boolean
) returns setof :DISPATCH_POLICY_SCHEMA._private_limiter_now language sql stable as $$
  with override as materialized (
    select o.*, p_now < o.until_at as in_force
    from :DISPATCH_POLICY_SCHEMA._overrides_by(p_policy_id, p_now) o
  ),
  effective as materialized (   -- what it works out is used more than once
    select l.id, l.gate, l.kind, l.breadth, l.position, l.scope_key, l.in_flight,
      case when l.reserved_until > p_now then l.reserved_for end as reserved_for, l.reserved_until,
      case when l.kind = 'throttle' and not l.sliding and exists (
          select from override x
          where x.gate = l.gate and (x.scope_key = l.scope_key or x.scope_key is null)
            and (x.began_at > l.refilled_at or (x.until_at > l.refilled_at and not x.in_force)))
        then :DISPATCH_POLICY_SCHEMA._throttle_settled(l, p_now) end as settled,
      case when l.longest_until > p_now then l.longest end as longest,
      l.tokens, l.refilled_at, l.sliding, l.smooth, l.spent, l.finished_per_second, l.rate as own_rate, l.per as own_per,
      -- every second
      case when l.kind = 'ahead' and (abs(extract(epoch from p_now - l.sampled_at)) >= 1) is not false then coalesce(
        (l.released - l.sampled_released) / greatest(extract(epoch from p_now - l.sampled_at)::float8, 1), 0) end as measured,
      coalesce((o.set ->> 'rate')::float8, l.rate) as rate,
      coalesce((o.set ->> 'per')::float8, l.per) as per,
      case when not l.sliding then coalesce((o.set ->> 'burst')::float8, l.burst) end as burst,
      case l.kind
        when 'concurrency' then coalesce((o.set ->> 'max')::int, l.max)
        when 'adaptive_concurrency' then :DISPATCH_POLICY_SCHEMA._adaptive_cap(
          coalesce(l.current_max, l.initial_max), coalesce((o.set ->> 'min')::int, l.min),
          coalesce((o.set ->> 'max')::int, l.max),
          coalesce((o.set ->> 'initial_max')::int, l.initial_max), l.in_flight)
        when 'ahead' then
          case when p_bounded then :DISPATCH_POLICY_SCHEMA._ahead_cap(l) end
      end as cap,
      case when l.kind = 'ahead' and p_bounded
        then cardinality(:DISPATCH_POLICY_SCHEMA._still_ending(l.ending)) else 0 end as ending
    from :DISPATCH_POLICY_SCHEMA._private_limiters l
    left join lateral (
      select x.set from override x
      where x.in_force and x.gate = l.gate and (x.scope_key = l.scope_key or x.scope_key is null)
      order by x.scope_key nulls last, x.id desc limit 1
    ) o on true
    where l.id = any(p_limiter_ids)
  )
  select e.id, e.gate, e.kind, e.breadth, e.position, e.scope_key, e.rate,
    case when e.sliding then :DISPATCH_POLICY_SCHEMA._window_seconds(e.rate, e.per) else e.per end,
    case e.kind when 'throttle' then :DISPATCH_POLICY_SCHEMA._throttle_capacity(e.rate, e.burst) end,
    case when e.kind = 'throttle' then case
      when e.rate <= 0 and not e.sliding then coalesce((e.settled).tokens, e.tokens)   -- a halt takes nothing
      when e.sliding then :DISPATCH_POLICY_SCHEMA._window_left(e.spent, e.rate, e.per, p_now)
      else :DISPATCH_POLICY_SCHEMA._throttle_tokens(
        coalesce((e.settled).tokens, e.tokens), coalesce((e.settled).refilled_at, e.refilled_at),
        e.rate, e.per, e.burst, e.smooth, p_now) end end,
    case when e.sliding then e.spent end,
    case when e.kind = 'throttle' then null
      when e.cap is null then 2147483647
      else :DISPATCH_POLICY_SCHEMA._concurrency_slots(e.cap, e.in_flight + e.ending) end,
    e.cap, e.in_flight,
    -- a reservation counts while its partition waits or is about to be looked at; one that lasts for longer than the
    -- partition has waited is of a clock that was ahead
    (select q.id from :DISPATCH_POLICY_SCHEMA._private_partitions q
      where q.id = e.reserved_for and q.due_at < 'infinity' and q.held_until <= p_now and q.paused_until <= p_now
        and e.reserved_until <= p_now + greatest(p_now - q.waiting_since, '1 second') + interval '1 second'),
    e.reserved_until, e.ending, e.finished_per_second, e.measured,
    case when e.sliding then greatest(
      :DISPATCH_POLICY_SCHEMA._window_seconds(e.rate, e.per),
      :DISPATCH_POLICY_SCHEMA._window_seconds(e.own_rate, e.own_per), e.longest) end
  from effective e;
$$;
