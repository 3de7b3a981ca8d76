-- Returns those of these limiters that it did NOT lock, because somebody else has. It locks all the others.
create or replace function _lock_available_limiters(p_ids bigint[])
returns bigint[] language plpgsql as $$
declare
  v_locked_ids bigint[] := array(
    select l.id from limiters l
    where l.id = any(p_ids) order by l.id for no key update skip locked);
begin
  return array(
    select l.id from limiters l
    where l.id = any(p_ids) and (l.id in (select unnest(v_locked_ids))) is not true);
end
$$;
