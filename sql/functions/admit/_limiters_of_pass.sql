-- What these limiters have left at `p_now`, as _limiters_now says it, for passes and the router. Most policies have no
-- override. For them the query that looks for overrides took half of the time of a look at three limiters.
create or replace function :DISPATCH_POLICY_SCHEMA._limiters_of_pass(
  p_policy_id int, p_limiters :DISPATCH_POLICY_SCHEMA._private_limiters[], p_now timestamptz, p_bounded boolean
) returns :DISPATCH_POLICY_SCHEMA._private_limiter_now[] language plpgsql stable as $$
begin
  if exists (select from :DISPATCH_POLICY_SCHEMA._private_overrides o where o.policy_id = p_policy_id) then
    return array(
      select n from :DISPATCH_POLICY_SCHEMA._limiters_now(
        p_policy_id, array(select l.id from unnest(p_limiters) l), p_now, p_bounded) n);
  end if;
  return array(
    select n from unnest(p_limiters) l
    cross join lateral :DISPATCH_POLICY_SCHEMA._limiter_left(l, null, null, p_now, p_bounded) n);
end
$$;
