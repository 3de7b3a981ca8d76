-- The hash of the newest definition of a policy that a live worker pool has, see the view `definitions`. Null: no live pool has
-- the policy.
create or replace function _newest_live(p_policy policies)
returns text language plpgsql stable as $$
begin
  return (
    select d.hash from :DISPATCH_POLICY_SCHEMA.definitions d where d.policy = (p_policy).name and d.newest_live);
end
$$;
