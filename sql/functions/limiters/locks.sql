-- Locks on limiters, by id.

-- All limiters of these partitions. It is in PL/pgSQL, so that a session plans it once and not at each call.
create or replace function _limiters_of(p_partition_ids uuid[]) returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select distinct u.id from partitions p cross join unnest(p.limiter_ids) u (id)
    where p.id = any(p_partition_ids));
end
$$;

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

-- _lock_limiters for passes: after 100 ms it raises lock_not_available. A release or another pass has a limiter locked for
-- a few milliseconds, an application's transaction for as long as it likes.
create or replace function _lock_limiters_soon(p_limiter_ids bigint[])
returns limiters[] language plpgsql set lock_timeout = '100ms' as $$
begin
  return _lock_limiters(p_limiter_ids);
end
$$;

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

-- Those of these limiters that another transaction has locked at this moment. It keeps no lock itself, because the caller
-- goes on to lock others in order.
create or replace function _locked_limiters(p_ids bigint[]) returns bigint[] language plpgsql as $$
declare
  v_locked_ids bigint[];
begin
  begin
    v_locked_ids := _lock_available_limiters(p_ids);
    raise exception using errcode = 'DPOUT';   -- which unlocks the others
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_locked_ids;
end
$$;
