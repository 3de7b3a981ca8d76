-- Locks a turn until the transaction ends, unless another session has it. Returns whether it did.
create or replace function _try_lock_turn(p_policy_id int, p_step text)
returns boolean language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = p_policy_id and u.step = p_step and u.place = 0 for update skip locked;
  return found;
end
$$;
