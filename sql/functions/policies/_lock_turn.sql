-- Waits for a turn (see turns), and keeps it until the transaction ends.
create or replace function _lock_turn(p_policy_id int, p_step text)
returns void language plpgsql as $$
begin
  perform from turns u
  where u.policy_id = p_policy_id and u.step = p_step and u.place = 0 for update;
end
$$;
