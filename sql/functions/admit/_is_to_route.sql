-- Whether there are arrivals to route.
create or replace function _is_to_route(p_policy text) returns boolean
language plpgsql stable as $$
begin
  return exists (select from arrivals a where a.policy = p_policy);
end
$$;
