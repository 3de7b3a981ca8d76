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

-- The overrides of a policy that a tick at `p_now` knows of: those in force, and those that are over. One that was set
-- for at once began when it was set; by a clock that is behind, it is in force all the same.
create or replace function :DISPATCH_POLICY_SCHEMA._overrides_by(p_policy_id int, p_now timestamptz)
returns table (id bigint, gate text, scope_key text, set jsonb, began_at timestamptz, until_at timestamptz)
language sql stable as $$
  select o.id, o.gate, o.scope_key, o.set,
    case when isfinite(o.from_at) or o.set_at > p_now then o.from_at else o.set_at end, o.until_at
  from :DISPATCH_POLICY_SCHEMA._private_overrides o
  where o.policy_id = p_policy_id and o.from_at <= p_now and not (o.taken_back and p_now < o.until_at);
$$;

-- What a limiter's override set at `p_at`, which is not after `p_now`; null: none was in force. _limiters_now asks for all
-- of its limiters at once, in the same order.
create or replace function :DISPATCH_POLICY_SCHEMA._override_at(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_at timestamptz, p_now timestamptz
) returns jsonb language sql stable as $$
  select o.set from :DISPATCH_POLICY_SCHEMA._overrides_by(limiter.policy_id, p_now) o
  where o.gate = limiter.gate and (o.scope_key = limiter.scope_key or o.scope_key is null)
    and o.began_at <= p_at and p_at < o.until_at
  order by o.scope_key nulls last, o.id desc limit 1;
$$;

-- An adaptive limiter with the numbers in force.
create or replace function :DISPATCH_POLICY_SCHEMA._with_override(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_limiters language plpgsql stable as $$
declare
  v_set jsonb := :DISPATCH_POLICY_SCHEMA._override_at(limiter, p_now, p_now);
begin
  limiter.min := coalesce((v_set ->> 'min')::int, limiter.min);
  limiter.max := coalesce((v_set ->> 'max')::int, limiter.max);
  limiter.target_lag_ms := coalesce((v_set ->> 'target_lag_ms')::float8, limiter.target_lag_ms);
  return limiter;
end
$$;

-- A bucket brought to `p_now`, each stretch of the time since it was last filled by the numbers that were in force then:
-- a rate brings nothing for the time before it.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_settled(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_now timestamptz
) returns :DISPATCH_POLICY_SCHEMA._private_limiters language plpgsql stable as $$
declare
  v_at timestamptz;
  v_set jsonb;
begin
  for v_at in
    select p_now where p_now > limiter.refilled_at
    union
    select t.at from :DISPATCH_POLICY_SCHEMA._overrides_by(limiter.policy_id, p_now) o
    cross join unnest(array[o.began_at, o.until_at]) t (at)
    where o.gate = limiter.gate and (o.scope_key = limiter.scope_key or o.scope_key is null)
      and t.at > limiter.refilled_at and t.at < p_now
    order by 1
  loop
    v_set := :DISPATCH_POLICY_SCHEMA._override_at(limiter, limiter.refilled_at, p_now);
    -- a halt brings nothing, and takes nothing
    if coalesce((v_set ->> 'rate')::float8, limiter.rate) > 0 then
      limiter.tokens := :DISPATCH_POLICY_SCHEMA._throttle_tokens(
        limiter.tokens, limiter.refilled_at, coalesce((v_set ->> 'rate')::float8, limiter.rate),
        coalesce((v_set ->> 'per')::float8, limiter.per), coalesce((v_set ->> 'burst')::float8, limiter.burst),
        limiter.smooth, v_at);
    end if;
    limiter.refilled_at := v_at;
  end loop;
  return limiter;
end
$$;
