-- Locks these limiters, ascending, and returns them as they are then. A lock does not refresh the snapshot of the statement
-- that waited for it, but the rows that it locked are the latest. What else of them is decided by must be read in a later
-- statement.
create or replace function _lock_limiters(p_limiter_ids bigint[])
returns limiters[] language plpgsql as $$
begin
  return array(
    select l from limiters l
    where l.id = any(p_limiter_ids) order by l.id for no key update);
end
$$;
