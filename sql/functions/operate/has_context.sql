-- Whether the context of a partition has these values. It reads the row of that partition, and no other. A partition that is
-- not there has none.
--
--   select dispatch_policy.has_context('fetch_endpoint', 'ep1', '{"account": "acme"}');
create or replace function :DISPATCH_POLICY_SCHEMA.has_context(policy text, partition text, "where" jsonb)
returns boolean language sql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select exists (
    select from partitions q
    where q.id = _partition_id(has_context.policy, has_context.partition)
      and q.context @> has_context."where");
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.has_context from public;
