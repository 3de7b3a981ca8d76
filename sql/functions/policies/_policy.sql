-- The policy of this name. Raises if nobody has declared it.
create or replace function _policy(p_policy text)
returns policies language plpgsql stable as $$
declare
  v_policy policies;
begin
  select * into v_policy from policies p where p.name = p_policy;
  if v_policy.id is null then
    perform _unknown_policy(p_policy);
  end if;
  return v_policy;
end
$$;
