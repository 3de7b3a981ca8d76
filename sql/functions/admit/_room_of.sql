-- What a limiter has left at `p_now` under these numbers of an override (`p_set`, null: its own): `slots` of a cap, `tokens`
-- of a throttle. The other one is null. At a rate of zero or less nothing goes, whatever the bucket has.
--
-- A shadow gate has endless room here, as a cap without a bound, so nothing that ranks or calls knows of it. Beside it stands
-- what the gate really has, in `shadow_tokens` or `shadow_slots`.
--
--   p_turned_at   when an override last gave it other numbers, or took them back; null: never
--   p_bounded     false: the ahead bound does not count. An explicit tick is not kept just ahead of the workers.
--   spent         of a window, whose tokens are what it has left; else null
--   measured      how many jobs of the policy finished in a second, if it is time to measure anew
--   remembered    for how many seconds a window must know what was spent. An override's window may be shorter than its
--     own. So may a new definition's, and the next deployment may bring the old one back.
--   share         of a gate with `perWorker`: how many jobs each worker pool may run at once. Else null
--   pools         of a gate with `perWorker`: how many worker pools its cap goes by. Else null
--   rises_at      when the cap rises that holds because a worker pool has requeued a job; null: none does
--   ending        released jobs that Graphile Worker still has; the ahead bound has no room for them
--
-- It is a query without plpgsql, so that PostgreSQL puts it into that of its callers.
create or replace function _room_of(
  l limiters, p_set jsonb, p_turned_at timestamptz, p_now timestamptz, p_bounded boolean
) returns setof room_before language sql stable as $$
  select e.id, e.gate, e.kind, e.breadth, e.position, e.scope_key, (e.numbers).rate,
    case when (e.numbers).sliding then _window_seconds(e.numbers, p_now) else (e.numbers).per end,
    case when e.by_tokens then _throttle_capacity(e.numbers) end,
    case when not e.is_shadow then e.tokens_now end,
    case when e.is_window then e.spent end,
    case when e.is_shadow then 2147483647 else e.slots_now end,
    e.cap, e.in_flight,
    -- A reservation counts while its partition waits, or is about to be looked at. If it lasts for longer than the
    -- partition has waited, a clock was ahead.
    (select q.id from partitions q
      where q.id = e.reserved_for and q.due_at < 'infinity' and q.stopped_until <= p_now
        and e.reserved_until <= p_now + greatest(p_now - q.waiting_since, '1 second') + interval '1 second'),
    e.reserved_until, e.ending, e.measured,
    (e.numbers).calendar, case when e.is_window then _window_seconds(e.numbers, p_now) end,
    case when e.is_window then greatest(
      _window_remembered(e.numbers, p_now), _window_remembered(e.own_numbers, p_now),
      e.longest) end,
    e.admitted, case when e.is_shadow then e.tokens_now end, case when e.is_shadow then e.slots_now end,
    case when e.pools is not null then (e.numbers).max end, e.pools, e.rises_at
  from (
    select x.*, (x.numbers).shadow is true as is_shadow,
      case when x.by_tokens then case
        when (x.numbers).rate <= 0 and not x.is_window then coalesce((x.brought).tokens, x.tokens)   -- a halted bucket keeps its tokens
        when x.is_window then _window_left(x.spent, x.numbers, p_now)
        else _throttle_tokens(
          coalesce((x.brought).tokens, x.tokens), coalesce((x.brought).refilled_at, x.refilled_at), x.numbers, p_now)
        end end as tokens_now,
      case when x.by_tokens then null
        when x.cap is null then 2147483647
        else _concurrency_slots(x.cap, x.in_flight + x.ending) end as slots_now
    from (
      select l.id, l.gate, l.kind, l.breadth, l.position, l.scope_key, l.in_flight, l.admitted, l.by_tokens,
        case when l.reserved_until > p_now then l.reserved_for end as reserved_for, l.reserved_until,
        case when l.by_tokens and not _is_window(l.numbers) and p_turned_at > l.refilled_at
          then _throttle_brought_to(l, p_now, _context_of(l)) end as brought,
        case when l.longest_until > p_now then l.longest end as longest,
        l.tokens, l.refilled_at, l.spent, l.numbers as own_numbers, n.numbers,
        _is_window(n.numbers) as is_window,
        -- once a second
        case when l.kind = 'ahead' and (abs(extract(epoch from p_now - l.sampled_at)) >= 1) is not false then coalesce(
          (l.released - l.sampled_released) / greatest(extract(epoch from p_now - l.sampled_at)::float8, 1), 0) end as measured,
        case when l.kind <> 'ahead' or p_bounded then _gate_cap(l, n.numbers, w.pools, p_now) end as cap,
        w.pools,
        case when w.pools is not null
            and _local_cap(l, p_now) < _shares_in_all((n.numbers).max, w.pools)
          then _local_rises_at(l, p_now) end as rises_at,
        case when l.kind = 'ahead' and p_bounded
          then cardinality(_still_ending(l.ending)) else 0 end as ending
      from (select case when p_set is null then l.numbers else jsonb_populate_record(l.numbers, p_set) end as numbers) n
      -- counted once: the cap and what the limiter remembers of it must be of the same moment
      cross join lateral (
        select case when (n.numbers).per_worker then _live_pools(l.policy_id) end as pools offset 0) w
      offset 0
    ) x offset 0   -- each is worked out once, though two columns read it
  ) e;
$$;
