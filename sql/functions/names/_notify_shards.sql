-- Notifies only the tick loops of these shards. If a shard has no leader, the worker pools that may lead it bid for it.
create or replace function _notify_shards(p_policy text, p_shards text[]) returns void
language sql volatile as $$
  select pg_notify('dispatch_policy', json_strip_nulls(json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p_policy, 'shard', u.shard,
    'vacant', case when not exists (
      select from leases e
      where e.policy = p_policy and e.shard = u.shard and e.expires_at > clock_timestamp()) then true end))::text)
  from unnest(p_shards) u (shard);
$$;
