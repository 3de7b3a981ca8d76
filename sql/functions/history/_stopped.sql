-- For how many seconds between two times a partition was stopped, by reason. If several stops overlap, a pause counts before
-- a hold, and a hold before a breaker.
create or replace function _stopped(
  p_policy_id int, p_partition_id uuid, p_from timestamptz, p_until timestamptz
) returns table (reason text, seconds numeric) language sql stable as $$
  with stop as (
    select coalesce(range_agg(s.span) filter (where s.reason = 'paused'), '{}') as paused,
      coalesce(range_agg(s.span) filter (where s.reason = 'held'), '{}') as held,
      coalesce(range_agg(s.span) filter (where s.reason = 'breaker_open'), '{}') as broken
    from (
      select x.reason, tstzrange(x.from_at, x.until_at) * tstzrange(p_from, p_until) as span
      from stop_times x
      where x.policy_id = p_policy_id and x.partition_id in (p_partition_id, '00000000-0000-0000-0000-000000000000')
        and x.until_at > p_from and x.from_at < p_until
    ) s
  )
  select k.reason, sum(extract(epoch from upper(r.span) - lower(r.span)))
  from stop p
  cross join lateral (
    values ('paused', p.paused), ('held', p.held - p.paused), ('breaker_open', p.broken - p.held - p.paused)
  ) k (reason, spans)
  cross join unnest(k.spans) r (span)
  group by k.reason;
$$;
