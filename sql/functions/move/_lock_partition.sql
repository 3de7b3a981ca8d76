-- Locks a partition as a pass does, so that no pass has chosen jobs of it, and none does before the caller's transaction ends.
--
-- The danger: a partition that no router knows yet has no row to lock. A router may make the row, and a pass may claim it, in
-- a transaction that this session does not see. The cure: it waits for the router's turn, and looks again. Nobody makes a
-- partition outside that turn.
create or replace function _lock_partition(p_policy_id int, p_policy text, p_key text) returns void
language plpgsql volatile as $$
declare
  v_id uuid := _partition_id(p_policy, p_key);
begin
  perform from partitions q where q.id = v_id for no key update;
  if not found then
    perform _lock_turn(p_policy_id, 'route');
    perform from partitions q where q.id = v_id for no key update;
  end if;
end
$$;
