-- Records that a pool is connected through a pooler in transaction mode.
create or replace function :DISPATCH_POLICY_SCHEMA._worker_pooled(p_pool_id text) returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  update :DISPATCH_POLICY_SCHEMA._private_workers w set pooled = true where w.pool_id = p_pool_id;
$$;
