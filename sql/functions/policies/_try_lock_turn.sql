-- Locks a turn until the transaction ends, unless another session has it. Returns whether it did.
create or replace function :DISPATCH_POLICY_SCHEMA._try_lock_turn(p_policy_id int, p_step text)
returns boolean language plpgsql as $$
begin
  perform from :DISPATCH_POLICY_SCHEMA._private_turns u
  where u.policy_id = p_policy_id and u.step = p_step and u.place = 0 for update skip locked;
  return found;
end
$$;
