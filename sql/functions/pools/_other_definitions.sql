-- The policies of a pool that another live pool has in another definition of the same version.
create or replace function _other_definitions(p_pool_id text) returns setof text language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select d.key from workers w
  cross join jsonb_each(w.definitions) d
  where w.pool_id = p_pool_id and exists (
    select from workers x
    where x.stale_at > clock_timestamp() and x.definitions #> array[d.key, 'version'] = d.value -> 'version'
      and x.definitions #> array[d.key, 'hash'] <> d.value -> 'hash')
  order by d.key;
$$;
