-- In how many seconds after `p_at` a throttle has the tokens for a job: at least, and at most. Only jobs of its own
-- partition spend them. It has refilled, and nobody has spent, until `p_at`. `p_gate` is a gate of _explained_gates.
--
-- If nothing is spent before, the gate's `next_at` is exact. A job that costs more than the bucket's capacity waits for a full
-- one, and leaves a debt. The tokens of a window come back as unevenly as they were spent, a 64th of it late. What is too little
-- for one more job stays unused.
create or replace function _throttle_seconds(
  p_gate jsonb, p_cost_ahead float8, p_cost float8, p_at timestamptz, p_now timestamptz, out least_s float8, out most_s float8
) language plpgsql stable as $$
declare
  v_per float8 := (p_gate #>> '{limit,per}')::float8;
  v_capacity float8 := (p_gate #>> '{limit,capacity}')::float8;
  v_rate float8 := (p_gate #>> '{limit,rate}')::float8 / v_per;
  v_after float8 := extract(epoch from p_at - p_now);
  v_used float8 := (p_gate ->> 'used')::float8;
  v_cost float8 := least(p_cost, v_capacity);
  v_usable float8 := v_capacity;
begin
  if p_cost_ahead = 0 then
    least_s := coalesce(greatest(extract(epoch from (p_gate ->> 'next_at')::timestamptz - p_at)::float8, 0), 0);
    most_s := least_s + 0.5;
  elsif p_gate #>> '{limit,calendar}' is not null then
    select c.least_s, c.most_s into least_s, most_s
    from _calendar_seconds(p_gate, p_cost_ahead, p_cost, p_at, p_now) c;
  elsif (p_gate #>> '{limit,sliding}')::boolean then
    v_used := case when v_after >= v_per then 0 else v_used end;
    if v_cost > 0 then
      v_usable := floor(v_capacity / v_cost + 1e-9) * v_cost;
    end if;
    least_s := greatest(ceil((p_cost_ahead + v_cost) / v_capacity - 1e-9) - 1, 0) * v_per;
    most_s := (p_cost_ahead + v_cost + v_used) / v_usable;
    most_s := case when most_s <= 1 then 0 else most_s * v_per * 65 / 64 end + 0.5;
  else
    least_s := greatest((p_cost_ahead + v_cost - least(v_capacity, v_capacity - v_used + v_rate * v_after)) / v_rate, 0);
    most_s := least_s * 1.03 + v_cost / v_rate * (least_s > 0)::int + 0.5;
    least_s := greatest(least_s * 0.98 - 0.1, 0);
  end if;
end
$$;
