-- Whether drops wait for somebody who counts them and tells of them, or partitions with mixed keys. Volatile, so that it sees
-- those of the pass before it in the same statement.
create or replace function :DISPATCH_POLICY_SCHEMA._is_to_tell(p_policy text) returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from :DISPATCH_POLICY_SCHEMA._private_drops d where d.policy = p_policy) or exists (
    select from :DISPATCH_POLICY_SCHEMA._private_policies p
    join :DISPATCH_POLICY_SCHEMA._private_partitions q
      on q.policy_id = p.id and not q.mixed_told and q.mixed_told is not null
    where p.name = p_policy and p.keyed_scopes);
end
$$;
