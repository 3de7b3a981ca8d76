-- Of a policy with strict order: puts the claimed partitions to sleep that wait for their first job, and returns the others.
-- The caller has locked them, and has promoted what is due. So a first job whose time has come is locked by another session,
-- and its partition is looked at again in a moment.
create or replace function _wait_in_order(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean
) returns uuid[] language plpgsql volatile as $$
declare
  v_waiting uuid[];
begin
  with waiting as materialized (
    select h.* from _waiting_heads(p_partition_ids) h
  ),
  marked as (
    update partitions p set
      denied_until = greatest(w.until_at, p_now + interval '50 milliseconds'), blocked_on = null,
      denied_reason = 'strict_order', looked_at = p_now, in_line_since = null, goes_first = false,
      fair_key = _fair_key(
        p_policy, _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now),
        p.mean_work, p.weight, p_now),
      visited = nextval('ticks'),
      held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
      breaker_until = case when p.breaker_until <= p_now then '-infinity' else p.breaker_until end,
      paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end
    from waiting w where p.id = w.partition_id and p.id = any(p_partition_ids)
    returning p.id
  )
  select coalesce(array_agg(m.id), '{}') into v_waiting from marked m;
  if v_waiting = '{}' then
    return p_partition_ids;
  end if;
  if (p_policy).history_kept_for is not null then
    perform _record_reasons((p_policy).id, v_waiting, p_now, p_is_pass);
  end if;
  return array(select u.id from unnest(p_partition_ids) u (id) where u.id <> all (v_waiting));
end
$$;
