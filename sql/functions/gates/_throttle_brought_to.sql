-- A bucket brought to `p_now`. Each stretch of time since it was last filled counts by the numbers that were in force
-- then. So a rate brings nothing for the time before it. `p_context` is that of its partition at that time (_context_of).
create or replace function _throttle_brought_to(
  limiter limiters, p_now timestamptz, p_context jsonb
) returns limiters language plpgsql stable as $$
declare
  v_at timestamptz;
  v_numbers gate_numbers;
begin
  for v_at in
    select p_now where p_now > limiter.refilled_at
    union
    select t.at from _overrides_by(limiter.policy_id, p_now) o
    cross join unnest(array[o.began_at, o.until_at]) t (at)
    where o.gate = limiter.gate and (o.scope_key = limiter.scope_key or o.scope_key is null)
      and (o.context is null or p_context @> o.context)
      and t.at > limiter.refilled_at and t.at < p_now
    order by 1
  loop
    v_numbers := jsonb_populate_record(
      limiter.numbers, _override_at(limiter, p_context, limiter.refilled_at, p_now));
    -- a halt brings nothing, and takes nothing
    if (v_numbers).rate > 0 then
      limiter.tokens := _throttle_tokens(limiter.tokens, limiter.refilled_at, v_numbers, v_at);
    end if;
    limiter.refilled_at := v_at;
  end loop;
  return limiter;
end
$$;
