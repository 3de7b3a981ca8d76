-- Whether drops wait for somebody who counts them and tells of them. Volatile, so that it sees those of the pass before it
-- in the same statement.
create or replace function :DISPATCH_POLICY_SCHEMA._is_to_tell(p_policy text) returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
  return exists (select from :DISPATCH_POLICY_SCHEMA._private_drops d where d.policy = p_policy);
end
$$;
