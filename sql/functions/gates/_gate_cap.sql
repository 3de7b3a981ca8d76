-- How many jobs may be in flight at once under this gate, by `numbers` (its own, or an override's). Null: no bound, as for
-- gates that count tokens. A new kind of cap is a line here.
--
--   p_pools   of a gate with `perWorker`: how many live worker pools have a task of the policy
create or replace function _gate_cap(
  limiter limiters, numbers gate_numbers,
  p_pools int, p_now timestamptz
) returns int language sql stable as $$
  select case when (numbers).per_worker then least(
    _shares_in_all((numbers).max, p_pools), _local_cap(limiter, p_now))
  else case limiter.kind
    when 'concurrency' then (numbers).max
    when 'adaptive_concurrency' then _adaptive_cap(
      coalesce(limiter.current_max, (limiter.numbers).initial_max), (numbers).min, (numbers).max, (numbers).initial_max,
      limiter.in_flight)
    when 'ahead' then _ahead_cap(limiter, p_now)
    when 'throttle' then null
    else 0   -- of a kind that nobody knows, nothing goes
  end end;
$$;
