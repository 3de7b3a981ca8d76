-- Deletes minutes that are older than `p_kept_for`, oldest first: at most 10,000 a call, so that no transaction takes long.
-- A sweep calls it until none is left. It skips rows that another sweep is deleting. Returns how many it has deleted.
create or replace function :DISPATCH_POLICY_SCHEMA._collect_minutes(p_now timestamptz, p_kept_for interval) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  delete from :DISPATCH_POLICY_SCHEMA._private_minutes m
  where m.ctid = any(array(
    select o.ctid from :DISPATCH_POLICY_SCHEMA._private_minutes o
    where o.minute < p_now - p_kept_for order by o.minute limit 10000 for update skip locked));
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;
