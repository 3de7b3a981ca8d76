-- A pool that ends. Its row stays for a while: a fetch of its that was on its way, and comes through only now, locks a job
-- that nobody runs, and Graphile Worker keeps it so for hours. Where it leaves a job locked, it is to count as dead once it
-- is silent.
create or replace function :DISPATCH_POLICY_SCHEMA._worker_gone(p_pool_id text) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  update :DISPATCH_POLICY_SCHEMA._private_workers w
  set slots = 0, stale_at = clock_timestamp(), buried_at = clock_timestamp(), gone = true
  where w.pool_id = p_pool_id
    and not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = p_pool_id);
$$;
