-- Records which policies a worker pool's process has, so that two definitions of one version show, and nobody removes one.
--
--   p_definitions   { name: { "version", "hash" } }
create or replace function _worker_declares(p_pool_id text, p_definitions jsonb)
returns void language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  update workers w set definitions = p_definitions where w.pool_id = p_pool_id;
$$;
