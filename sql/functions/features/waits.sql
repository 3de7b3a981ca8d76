-- The history: what jobs waited for.

-- For how many seconds a partition has waited for each reason until then, since its first row in `waits`. What lies between
-- two moments is the difference. A stop counts by itself, see _stopped, and interrupts what a pass has decided.
create or replace function _reasons_until(p_partition_id uuid, p_at timestamptz) returns jsonb language sql stable as $$
  select coalesce((
    select case when r.reason is null then r.waited
      else r.waited || jsonb_build_object(r.reason, coalesce((r.waited ->> r.reason)::numeric, 0)
        + extract(epoch from p_at - r.from_at) - coalesce((
          select sum(s.seconds) from _stopped(r.policy_id, p_partition_id, r.from_at, p_at) s), 0)) end
    from waits r
    where r.partition_id = p_partition_id and r.until_at is null and r.from_at <= p_at order by r.from_at desc limit 1
  ), '{}');
$$;

-- For how many seconds between two times a partition was stopped, by reason. If several stops overlap, a pause counts before
-- a hold, and a hold before a breaker.
create or replace function _stopped(p_policy_id int, p_partition_id uuid, p_from timestamptz, p_until timestamptz)
returns table (reason text, seconds numeric) language sql stable as $$
  with stop as (
    select coalesce(range_agg(s.span) filter (where s.reason = 'paused'), '{}') as paused,
      coalesce(range_agg(s.span) filter (where s.reason = 'held'), '{}') as held,
      coalesce(range_agg(s.span) filter (where s.reason = 'breaker_open'), '{}') as broken
    from (
      select x.reason, tstzrange(x.from_at, x.until_at) * tstzrange(p_from, p_until) as span
      from waits x
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

-- For how many seconds a job has waited, as the history keeps it, by name as json: by reason, or by gate without what has no
-- gate. A reason or a gate may have several entries there, see _tell_waits.
create or replace function _waited_by(p_by text, waited jsonb) returns jsonb language sql immutable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select coalesce(jsonb_object_agg(s.name, s.seconds), '{}')
  from (
    select k.name, sum(e.value::numeric) as seconds
    from jsonb_each_text(waited) e
    cross join lateral (
      select case when p_by = 'reason' then split_part(e.key, ':', 1)
        when strpos(e.key, ':') > 0 then substr(e.key, strpos(e.key, ':') + 1) end as name
    ) k
    where k.name is not null group by k.name
  ) s;
$$;
