-- The policies of a pool that go by a definition of a higher version than the pool's own. Either a deployment is being rolled
-- back, or an old process has started again.
create or replace function _newer_definitions(p_pool_id text)
returns table (policy text, own_version int, in_force_version int) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select p.name, (d.value ->> 'version')::int, p.version from workers w
  cross join jsonb_each(w.definitions) d
  join policies p on p.name = d.key
  where w.pool_id = p_pool_id and p.version > (d.value ->> 'version')::int
  order by p.name;
$$;
