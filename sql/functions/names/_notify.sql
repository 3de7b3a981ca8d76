-- Notifies the tick loops that wait for work of this policy. Loops of other schemas ignore it.
create or replace function _notify(p_policy text) returns void language sql volatile as $$
  select pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p_policy)::text);
$$;
