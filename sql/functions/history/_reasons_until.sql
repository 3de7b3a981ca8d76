-- For how many seconds a partition has waited for each reason until then, since its first row in `reasons`. What lies between
-- two moments is the difference. A stop counts by itself, see _stopped, and interrupts what a pass has decided.
create or replace function _reasons_until(p_partition_id uuid, p_at timestamptz)
returns jsonb language sql stable as $$
  select coalesce((
    select case when r.reason is null then r.waited
      else r.waited || jsonb_build_object(r.reason, coalesce((r.waited ->> r.reason)::numeric, 0)
        + extract(epoch from p_at - r.from_at) - coalesce((
          select sum(s.seconds) from _stopped(r.policy_id, p_partition_id, r.from_at, p_at) s), 0)) end
    from reasons r
    where r.partition_id = p_partition_id and r.from_at <= p_at order by r.from_at desc limit 1
  ), '{}');
$$;
