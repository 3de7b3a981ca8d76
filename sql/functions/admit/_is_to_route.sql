-- Whether there is something to route: arrivals, or freed rows.
create or replace function :DISPATCH_POLICY_SCHEMA._is_to_route(p_policy_id int, p_policy text) returns boolean
language plpgsql stable as $$
begin
  return exists (select from :DISPATCH_POLICY_SCHEMA._private_freed f where f.policy_id = p_policy_id)
    or exists (select from :DISPATCH_POLICY_SCHEMA._private_arrivals a where a.policy = p_policy);
end
$$;
