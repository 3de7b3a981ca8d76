-- Those of these arrivals that still exist.
create or replace function _arrivals_left(p_policy text, p_ids bigint[]) returns bigint[]
language plpgsql stable as $$   -- planned once a session, as the rest of the router
begin
  return array(
    select a.id from arrivals a where a.policy = p_policy and a.id = any(p_ids));
end
$$;
