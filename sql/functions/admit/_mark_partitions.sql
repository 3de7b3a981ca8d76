-- Writes to each claimed partition what was admitted, the place of its next job, and when it is looked at again.
create or replace function :DISPATCH_POLICY_SCHEMA._mark_partitions(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_partition_ids uuid[],
  p_verdicts :DISPATCH_POLICY_SCHEMA._private_verdict[], p_now timestamptz, p_tick bigint
) returns void language plpgsql volatile as $$   -- planned as _charge
begin
  update :DISPATCH_POLICY_SCHEMA._private_partitions p set
    decayed_admits = s.decayed,
    decayed_at = :DISPATCH_POLICY_SCHEMA._throttle_mark(p.decayed_at, p_now),
    fair_key = :DISPATCH_POLICY_SCHEMA._fair_key(s.decayed, s.weight, (p_policy).half_life, p_now),
    admitted_total = p.admitted_total + s.admitted,
    admitted_at = case when s.admitted > 0 then p_now else p.admitted_at end,
    due_at = case
      -- due, and promoted by nobody: another session holds the row
      when s.head_id is null and s.admitted = 0 and s.next_run_at <= p_now then p_now + interval '50 milliseconds'
      when s.head_id is null then coalesce(s.next_run_at, 'infinity')
      when v.reason = 'tick_budget' then s.due_at
      -- by a time ahead it would not be looked at again before that time has come
      else least(p_now, clock_timestamp()) end,
    head_priority = coalesce(s.head_priority, 32767),
    head_run_at = coalesce(s.head_run_at, 'infinity'),
    head_id = coalesce(s.head_id, 9223372036854775807),
    head_cost = coalesce(s.head_cost, 1),
    -- a paused or held partition waits for its operator, for no limiter
    denied_until = case when p.held_until <= p_now and p.paused_until <= p_now
      then coalesce(v.denied_until, '-infinity') else '-infinity' end,
    blocked_on = case when p.held_until <= p_now and p.paused_until <= p_now then v.blocked_on end,
    held_until = case when p.held_until <= p_now then '-infinity' else p.held_until end,
    paused_until = case when p.paused_until <= p_now then '-infinity' else p.paused_until end,
    denied_reason = v.reason,
    waiting_since = case when s.head_id is null then null when s.admitted > 0 then p_now
      else least(s.waiting_since, p_now) end,
    probe_job_id = s.probe_job_id,
    visited = p_tick
  from unnest(p_verdicts) v cross join lateral (select (v.leftover).*) s
  where p.id = s.partition_id and p.id = any(p_partition_ids);
end
$$;
