-- Deletes the load that is older than its policy keeps it, or whose policy records none any more: at most 10,000 rows a
-- call. Returns how many it has deleted. It skips rows that another session has locked.
create or replace function _collect_load(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
begin
  delete from load x where x.ctid = any(array(
    select l.ctid from load l
    join policies p on p.id = l.policy_id
    where p.load_kept_for is null or l.minute < p_now - make_interval(secs => p.load_kept_for + 60)
    limit 10000 for update of l skip locked));
  get diagnostics v_removed = row_count;
  return v_removed;
end
$$;
