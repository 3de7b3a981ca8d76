-- Deletes history that is older than its policy keeps it, or whose policy has none any more. It deletes at most 10,000 rows of
-- each table a call. Of the reasons of a partition the last one stays, because it is in force. Returns how many it has deleted. It skips
-- rows that another session has locked.
create or replace function _collect_history(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
  v_removed_in_all int := 0;
begin
  delete from history x where x.ctid = any(array(
    select h.ctid from policies p
    join history h on h.policy_id = p.id
    where p.history_kept_for is null or h.ended_at < p_now - make_interval(secs => p.history_kept_for)
    limit 10000 for update of h skip locked));
  get diagnostics v_removed = row_count;
  v_removed_in_all := v_removed;
  delete from reasons x where x.ctid = any(array(
    select r.ctid from policies p
    join reasons r on r.policy_id = p.id
    where p.history_kept_for is null or (r.from_at < p_now - make_interval(secs => p.history_kept_for) and (
      not exists (select from partitions q where q.id = r.partition_id)
      or exists (
        select from reasons l where l.partition_id = r.partition_id
          and l.from_at > r.from_at and l.from_at < p_now - make_interval(secs => p.history_kept_for))))
    limit 10000 for update of r skip locked));
  get diagnostics v_removed = row_count;
  v_removed_in_all := v_removed_in_all + v_removed;
  delete from stop_times x where x.ctid = any(array(
    select s.ctid from policies p
    join stop_times s on s.policy_id = p.id
    where p.history_kept_for is null or s.until_at < p_now - make_interval(secs => p.history_kept_for)
    limit 10000 for update of s skip locked));
  get diagnostics v_removed = row_count;
  return v_removed_in_all + v_removed;
end
$$;
