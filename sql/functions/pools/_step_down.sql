-- Ends a pool's leases, so that the next loop need not wait until they run out. The rows stay, because the next loop learns
-- of the shards from them. A lease that was given up ended long ago: see _leader_keys.
create or replace function _step_down(p_holder text) returns void language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy text;
begin
  for v_policy in
    update leases l set expires_at = 'epoch'
    where l.holder = p_holder and l.expires_at > 'epoch' returning l.policy
  loop
    perform pg_notify('dispatch_policy', json_build_object(
      'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', v_policy, 'vacant', true)::text);
  end loop;
end
$$;
