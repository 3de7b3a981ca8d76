-- Locks every limiter of these partitions, ascending, and returns their ids. What they hold must be read in a later
-- statement: a lock does not refresh the snapshot of the statement that waited for it.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_limiters(p_partition_ids uuid[])
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[] := :DISPATCH_POLICY_SCHEMA._limiters_of(p_partition_ids);
begin
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l where l.id = any(v_ids) order by l.id for no key update;
  return v_ids;
end
$$;

-- The same for passes: after 100 ms it raises lock_not_available. A release or another pass holds a limiter for a few
-- milliseconds; an application's transaction for as long as it likes.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_limiters_soon(p_partition_ids uuid[])
returns bigint[] language plpgsql set lock_timeout = '100ms' as $$
begin
  return :DISPATCH_POLICY_SCHEMA._lock_limiters(p_partition_ids);
end
$$;

-- Locks those of these limiters that nobody else has locked, and returns the others.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_available_limiters(p_ids bigint[])
returns bigint[] language plpgsql as $$
declare
  v_locked_ids bigint[] := array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(p_ids) order by l.id for no key update skip locked);
begin
  return array(
    select l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.id = any(p_ids) and (l.id in (select unnest(v_locked_ids))) is not true);
end
$$;

-- Which of these limiters another transaction has locked at this moment. It keeps no lock itself: the caller goes on to
-- take others, in order.
create or replace function :DISPATCH_POLICY_SCHEMA._held_limiters(p_ids bigint[]) returns bigint[] language plpgsql as $$
declare
  v_held_ids bigint[];
begin
  begin
    v_held_ids := :DISPATCH_POLICY_SCHEMA._lock_available_limiters(p_ids);
    raise exception using errcode = 'DPOUT';   -- which lets go of the others
  exception when sqlstate 'DPOUT' then null;
  end;
  return v_held_ids;
end
$$;

-- All limiters of these partitions. In PL/pgSQL a session plans it once, not at each call.
create or replace function :DISPATCH_POLICY_SCHEMA._limiters_of(p_partition_ids uuid[]) returns bigint[]
language plpgsql stable as $$
begin
  return array(
    select distinct u.id from :DISPATCH_POLICY_SCHEMA._private_partitions p cross join unnest(p.limiter_ids) u (id)
    where p.id = any(p_partition_ids));
end
$$;
