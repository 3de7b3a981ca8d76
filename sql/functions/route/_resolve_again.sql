-- Appends limits that were resolved anew from stored contexts, as arrivals without work. Routing applies them like any
-- other.
create or replace function :DISPATCH_POLICY_SCHEMA._resolve_again(p_policy text, p_version int, p_partitions json)
returns void language sql volatile
set search_path = pg_catalog, pg_temp as $$
  insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (policy, partition_id, key, version, context, weight, limits)
  select p_policy, :DISPATCH_POLICY_SCHEMA._partition_id(p_policy, k.value ->> 'key'), k.value ->> 'key', p_version,
    (k.value -> 'context')::jsonb, (k.value ->> 'weight')::float8, (k.value -> 'limits')::jsonb
  from json_array_elements(p_partitions) k;
$$;
