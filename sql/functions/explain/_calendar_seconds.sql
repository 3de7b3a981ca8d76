-- In how many seconds after `p_at` a calendar window has the tokens for a job: at least, and at most. Only jobs of its own
-- partition spend them. `p_gate` is a gate of _explained_gates.
--
-- What does not fit into the window that has `p_at` in it goes in those that follow, each full at its beginning. What is too
-- little for one more job stays unused, at most so much in each.
create or replace function _calendar_seconds(
  p_gate jsonb, p_cost_ahead float8, p_cost float8, p_at timestamptz, p_now timestamptz, out least_s float8, out most_s float8
) language plpgsql stable as $$
declare
  v_calendar text := p_gate #>> '{limit,calendar}';
  v_capacity float8 := (p_gate #>> '{limit,capacity}')::float8;
  v_cost float8 := least(p_cost, v_capacity);
  v_left float8 := greatest(v_capacity - case
    when _calendar_begins_at(v_calendar, p_at) > p_now then 0
    else (p_gate ->> 'used')::float8 end, 0);
  v_usable float8 := v_capacity;
  v_usable_left float8 := v_left;
  v_least int;
  v_most int;
begin
  if v_cost > 0 then
    v_usable := floor(v_capacity / v_cost + 1e-9) * v_cost;
    v_usable_left := floor(v_left / v_cost + 1e-9) * v_cost;
  end if;
  -- a million windows are more than anybody waits for
  v_least := greatest(least(ceil((p_cost_ahead + v_cost - v_left) / v_capacity - 1e-9), 1e6), 0);
  v_most := greatest(least(ceil((p_cost_ahead + v_cost - v_usable_left) / v_usable - 1e-9), 1e6), 0);
  least_s := case when v_least = 0 then 0
    else extract(epoch from _calendar_ends_at(v_calendar, p_at, v_least - 1) - p_at) end;
  most_s := 0.5 + case when v_most = 0 then 0
    else extract(epoch from _calendar_ends_at(v_calendar, p_at, v_most - 1) - p_at) end;
end
$$;
