-- What stops a partition now, as json. `reason` is paused, held or breaker_open. `until` is when that ends, null if no time
-- ends it. `stop` says who did it, and why; `besides` is the hold or the breaker that ends before the other. Null: nothing
-- stops it.
create or replace function _stop_of(p_partition partitions)
returns jsonb language sql stable as $$
  select jsonb_build_object('reason', s.reason, 'until', u.until, 'stop', jsonb_build_object(
    'what', case when s.of_policy then 'policy' else 'partition' end,
    'by', case when s.of_policy then s.paused_by when s.reason = 'breaker_open' then 'breaker' else (p_partition).stopped_by end,
    'reason', case when s.of_policy then s.pause_reason when s.reason = 'breaker_open' then (p_partition).breaker_reason
      else (p_partition).stop_reason end,
    'until', u.until, 'besides', b.besides))
  from (
    select p.*, p.paused_until > clock_timestamp() as of_policy,
      _shown_reason(p.paused_until, (p_partition).paused_until, (p_partition).held_until,
        (p_partition).breaker_until, null) as reason
    from policies p where p.id = (p_partition).policy_id
  ) s
  cross join lateral (
    select case s.reason when 'paused' then greatest(s.paused_until, (p_partition).paused_until)
      else greatest((p_partition).held_until, (p_partition).breaker_until) end as at
  ) t
  cross join lateral (select case when isfinite(t.at) then t.at end as until) u
  left join lateral (
    select case s.reason
      when 'held' then jsonb_build_object('kind', 'breaker', 'by', 'breaker', 'reason', (p_partition).breaker_reason,
        'until', (p_partition).breaker_until)
      else jsonb_build_object('kind', 'hold', 'by', (p_partition).stopped_by, 'reason', (p_partition).stop_reason,
        'until', (p_partition).held_until) end as besides
    where s.reason <> 'paused' and least((p_partition).held_until, (p_partition).breaker_until) > clock_timestamp()
  ) b on true
  where s.reason is not null;
$$;
