-- How many tokens a bucket has when it is made: it is full, by the limit in force. A halt brings nothing, and takes nothing.
-- A window has none: nothing was spent in it.
-- `p_context` is that of its partition; null: it counts over more than one.
create or replace function _first_tokens(
  p_policy_id int, p_gate text, p_scope_key text, p_numbers gate_numbers, p_context jsonb,
  p_now timestamptz
) returns float8 language plpgsql stable as $$
declare
  v_numbers gate_numbers := jsonb_populate_record(p_numbers, (
    select o.set from overrides o
    where o.id = _override_id_at(p_policy_id, p_gate, p_scope_key, p_context, p_now, p_now)));
begin
  return _throttle_capacity(
    case when v_numbers.rate > 0 and not _is_window(p_numbers) then v_numbers else p_numbers end);
end
$$;
