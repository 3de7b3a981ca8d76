-- Records that a pool has ended. Its row stays for a while. A fetch that was under way may commit only now. It locks a
-- job that nobody runs, and Graphile Worker would keep that lock for hours. A pool that leaves a job locked counts as
-- dead once it is silent.
create or replace function _worker_ended(p_pool_id text) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update workers w
  set slots = 0, stale_at = clock_timestamp(), buried_at = clock_timestamp(), ended = true
  where w.pool_id = p_pool_id
    and not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = p_pool_id);
$$;
