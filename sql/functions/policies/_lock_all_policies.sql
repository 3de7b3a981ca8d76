-- Waits until no policy is being declared, and keeps others from declaring one until the transaction ends. So a verb for all
-- policies also meets one that is declared at the same time.
--
-- Under a fixed snapshot it would not see a policy that was declared while it waited, so it refuses one.
create or replace function _lock_all_policies(p_verb text) returns void language plpgsql as $$
begin
  perform _check_isolation(p_verb || ' of all policies');
  perform _lock_turn(0, 'declare');
end
$$;
