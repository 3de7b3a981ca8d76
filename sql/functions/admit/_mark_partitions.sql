-- Writes to each claimed partition what was admitted, the place of its next job, and when it is looked at again.
--
-- A partition is in line while only others stand before it. What it waits for its own gates does not count. Of those that
-- the budget left, the ones that have been in line for longest may go first in the next pass.
create or replace function _mark_partitions(
  p_policy policies, p_partition_ids uuid[],
  p_verdicts verdict[], p_now timestamptz, p_tick bigint
) returns void language plpgsql volatile as $$   -- planned as _charge
declare
  v_first uuid[] := '{}';
begin
  if (p_policy).admission_budget is not null and exists (select from unnest(p_verdicts) v where v.reason = 'tick_budget') then
    v_first := array(
      select p.id from partitions p
      where p.id = any(array(
          select (v.leftover).partition_id from unnest(p_verdicts) v
          where v.reason = 'tick_budget' and (v.leftover).admitted = 0))
        and p.ready and p.in_line_since <= _long_since(p_now)
      order by p.in_line_since, p.id
      limit (select _longest_first(p_policy, l.admitted, (p_policy).admission_budget)
        from limiters l where l.id = (p_policy).ahead_limiter_id));
  end if;
  update partitions p set
    decayed_admits = s.decayed,
    decayed_at = _throttle_filled_at(p.decayed_at, p_now),
    fair_key = _fair_key(p_policy, s.decayed, p.mean_work, s.weight, p_now),
    looked_at = p_now,
    admitted_total = p.admitted_total + s.admitted,
    staged = p.staged - s.gone,
    admitted_at = case when s.admitted > 0 then p_now else p.admitted_at end,
    due_at = case
      -- it is due, but another session has its row locked
      when s.head_id is null and s.admitted = 0 and s.next_run_at <= p_now then p_now + interval '50 milliseconds'
      when s.head_id is null then coalesce(s.next_run_at, 'infinity')
      when v.reason = 'tick_budget' then s.due_at
      -- with a time ahead it would not be looked at before that time
      else least(p_now, clock_timestamp()) end,
    head_priority = coalesce(s.head_priority, n.priority),
    head_run_at = coalesce(s.head_run_at, n.run_at),
    head_id = coalesce(s.head_id, n.id),
    head_cost = coalesce(s.head_cost, 1),
    -- a partition that is stopped waits for no limiter
    denied_until = case when p.stopped_until <= p_now
      then coalesce(v.denied_until, '-infinity') else '-infinity' end,
    blocked_on = case when p.stopped_until <= p_now then v.blocked_on end,
    held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
    breaker_until = case when p.breaker_until <= p_now then '-infinity' else p.breaker_until end,
    paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end,
    denied_reason = case when p.stopped_until <= p_now then v.reason end,
    waiting_since = case when s.head_id is null then null when s.admitted > 0 then p_now
      else least(s.waiting_since, p_now) end,
    in_line_since = case
      when s.head_id is null or s.probe_job_id is not null or (v.lack).breadth = 0 then null
      when s.admitted > 0 then p_now
      else least(case when p.ready or p.blocked_on is not null then p.in_line_since end, p_now) end,
    goes_first = p.id = any(v_first),
    probe_job_id = s.probe_job_id,
    visited = p_tick
  from unnest(p_verdicts) v cross join lateral (select (v.leftover).*) s
    cross join _no_head() n
  where p.id = s.partition_id and p.id = any(p_partition_ids);
end
$$;
