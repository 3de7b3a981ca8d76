-- The policy of this name. Raises if nobody has declared it.
create or replace function :DISPATCH_POLICY_SCHEMA._policy(p_policy text)
returns :DISPATCH_POLICY_SCHEMA._private_policies language plpgsql stable as $$
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies;
begin
  select * into v_policy from :DISPATCH_POLICY_SCHEMA._private_policies p where p.name = p_policy;
  if v_policy.id is null then
    perform :DISPATCH_POLICY_SCHEMA._unknown_policy(p_policy);
  end if;
  return v_policy;
end
$$;
