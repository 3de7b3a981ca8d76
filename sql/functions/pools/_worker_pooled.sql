-- Records that a pool is connected through a pooler in transaction mode.
create or replace function _worker_pooled(p_pool_id text) returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update workers w set pooled = true where w.pool_id = p_pool_id;
$$;
