-- A page of a policy's partitions whose limits are to be worked out again from their stored contexts. `arrival_id` is the
-- arrival that brought the context.
create or replace function :DISPATCH_POLICY_SCHEMA._partitions_to_resolve(p_policy text, p_after uuid, p_limit int)
returns table (id uuid, key text, context jsonb, arrival_id bigint) language sql stable
set search_path = pg_catalog, pg_temp as $$
  select q.id, q.key, q.context, q.arrival_id from :DISPATCH_POLICY_SCHEMA._private_partitions q
  where q.policy_id = (select p.id from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_policy)
    and (p_after is null or q.id > p_after)
  order by q.id limit p_limit;
$$;
