-- What _refresh_contexts would concern: the known ones of these partitions, with their jobs. It locks nothing, and refuses what
-- that would refuse.
create or replace function _refresh_reach(
  p_policy text, p_hash text, p_partition_ids uuid[], out partitions int, out staged int, out in_flight int
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  perform _refuse_definition(_policy(p_policy), p_hash);
  select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
  from _reach(p_policy, p_partition_ids) r;
end
$$;
