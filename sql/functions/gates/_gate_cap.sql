-- How many jobs may be in flight at once under this gate, by `numbers` (its own, or an override's). Null: no bound, as for
-- gates that count tokens. A new kind of cap is a line here.
--
--   p_pools   of a gate with `perWorker`: how many live worker pools have a task of the policy
create or replace function :DISPATCH_POLICY_SCHEMA._gate_cap(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, numbers :DISPATCH_POLICY_SCHEMA._private_gate_numbers,
  p_pools int, p_now timestamptz
) returns int language sql stable as $$
  select case when (numbers).per_worker then least(
    :DISPATCH_POLICY_SCHEMA._shares_in_all((numbers).max, p_pools), :DISPATCH_POLICY_SCHEMA._local_cap(limiter, p_now))
  else case limiter.kind
    when 'concurrency' then (numbers).max
    when 'adaptive_concurrency' then :DISPATCH_POLICY_SCHEMA._adaptive_cap(
      coalesce(limiter.current_max, (limiter.numbers).initial_max), (numbers).min, (numbers).max, (numbers).initial_max,
      limiter.in_flight)
    when 'ahead' then :DISPATCH_POLICY_SCHEMA._ahead_cap(limiter, p_now)
  end end;
$$;
