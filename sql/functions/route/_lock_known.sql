-- Locks those of these partitions that are there and that nobody else has locked. Returns what the steps of routing read of
-- them, all together: see _claimed.
create or replace function _lock_known(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz
) returns known[] language plpgsql as $$
begin
  return array(
    select row(p.id, p.limits, p.arrival_id, p.version, p.weight, p.head_priority, p.head_run_at, p.head_id, p.due_at,
      p.ready, p.blocked_on, p.denied_until, p.denied_reason,
      _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now)
    )::known
    from partitions p
    where p.id = any(p_partition_ids) order by p.id for no key update skip locked);
end
$$;
