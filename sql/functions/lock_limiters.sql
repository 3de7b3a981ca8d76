-- Locks every limiter of these partitions, ascending, and returns their ids. What they hold must be read in a later
-- statement: a lock does not refresh the snapshot of the statement that waited for it.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_limiters(p_partition_ids uuid[])
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[] := array(
    select distinct u.id from :DISPATCH_POLICY_SCHEMA._private_partitions p cross join unnest(p.limiter_ids) u (id)
    where p.id = any(p_partition_ids));
begin
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l where l.id = any(v_ids) order by l.id for no key update;
  return v_ids;
end
$$;
