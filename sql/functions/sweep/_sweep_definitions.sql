-- Puts the newest definition that a live worker pool has in force, for each policy of which another one is: the last pool of a
-- newer one is gone. So a deployment that was rolled back goes by its own limits. A policy also gets its tasks back from one
-- that no live pool has any more, as when a rename is rolled back. Without a live pool, all stays as it is.
--
-- Returns what has changed. The pools that have the definition are notified, and work the limits out again.
--
-- The danger: after the database was away, the pools of the newer definition are silent for a moment, and limits would change
-- to and fro. The cure: while any pool is silent, nothing changes. _sweep_workers buries it first.
create or replace function _sweep_definitions()
returns table (policy text, version int, version_before int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '2s'
as $$
#variable_conflict use_column
declare
  v_policy policies;
  v_live text;
begin
  if exists (
      select from workers w
      where w.stale_at <= clock_timestamp() and w.buried_at is null and not w.ended)
    or not exists (
      select from policies p where _is_behind(p)) then
    return;
  end if;
  perform _lock_turn(0, 'declare');
  for v_policy in
    select p.* from policies p where _is_behind(p) order by p.id
  loop
    perform _put_in_force(
      v_policy, _newest_live(v_policy), clock_timestamp());
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', v_policy.name, 'redefined', true)::text);
    return query select p.name, p.version, v_policy.version from policies p
    where p.id = v_policy.id;
  end loop;
end
$$;
