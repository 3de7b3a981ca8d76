-- Deletes the rows of a table that are older than `p_kept_for`, oldest first: at most 10,000 a call, so that no transaction
-- takes long. A sweep calls it until none is left. It skips rows that another sweep is deleting. Returns how many it has
-- deleted.
--
--   p_table   name of the table   p_time    its column that says how old a row is; rows of '-infinity' stay
create or replace function _collect_old(
  p_table text, p_time text, p_now timestamptz, p_kept_for interval
) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  execute format(
    'delete from %1$I x where x.ctid = any(array(
      select o.ctid from %1$I o where o.%2$I > ''-infinity'' and o.%2$I < $1
      order by o.%2$I limit 10000 for update skip locked))', p_table, p_time)
  using p_now - p_kept_for;
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;
