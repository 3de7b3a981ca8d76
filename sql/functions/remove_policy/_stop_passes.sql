-- Pauses a policy that is being removed, and waits for the passes that are under way. A pass that has not committed may have
-- admitted jobs that nobody sees yet. The policy to which the others move would let as many go beside them.
--
-- Each pass locks the ahead bound, and looks under that lock whether the policy is paused.
create or replace function _stop_passes(p_policy text) returns void
language plpgsql volatile as $$
begin
  perform from limiters l
  where l.id = (select p.ahead_limiter_id from policies p where p.name = p_policy)
  for update;
  update policies p
  set paused_until = 'infinity', paused_by = session_user, pause_reason = 'it is being removed'
  where p.name = p_policy and p.paused_until < 'infinity';
end
$$;
