-- Whether there is something to route: arrivals, or freed rows.
create or replace function _is_to_route(p_policy_id int, p_policy text) returns boolean
language plpgsql stable as $$
begin
  return exists (select from freed f where f.policy_id = p_policy_id)
    or exists (select from arrivals a where a.policy = p_policy);
end
$$;
