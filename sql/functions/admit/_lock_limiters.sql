-- Locks every limiter of these partitions, ascending, and returns their ids. A lock does not refresh the snapshot of the
-- statement that waited for it. So their numbers must be read in a later statement.
create or replace function :DISPATCH_POLICY_SCHEMA._lock_limiters(p_partition_ids uuid[])
returns bigint[] language plpgsql as $$
declare
  v_ids bigint[] := :DISPATCH_POLICY_SCHEMA._limiters_of(p_partition_ids);
begin
  perform from :DISPATCH_POLICY_SCHEMA._private_limiters l where l.id = any(v_ids) order by l.id for no key update;
  return v_ids;
end
$$;
