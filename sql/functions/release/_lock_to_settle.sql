-- Locks the limiters of a release that settles jobs. Their throttles are among them.
--
-- The danger: a `take` in an open transaction has a throttle locked for long. Whoever needs one of the other limiters would
-- wait behind this release. The cure: it waits for less time than a pass does (_lock_limiters_soon).
create or replace function _lock_to_settle(p_limiter_ids bigint[]) returns void
language plpgsql volatile set lock_timeout = '50ms' as $$   -- planned as _release
begin
  perform from limiters l
  where l.id = any(p_limiter_ids) order by l.id for no key update;
end
$$;
