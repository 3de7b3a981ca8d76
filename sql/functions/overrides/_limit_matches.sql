-- How many limiters have the key of a limit now, or how many partitions have its context. For a context it reads all
-- partitions of the policy.
create or replace function _limit_matches(
  p_policy_id int, p_gate text, p_key text, p_where jsonb
) returns int language plpgsql stable as $$
begin
  if p_where is not null then
    return (
      select count(*) from partitions q
      where q.policy_id = p_policy_id and q.arrival_id > 0 and q.context @> p_where);
  end if;
  return (
    select count(*) from limiters l
    where l.policy_id = p_policy_id and l.gate = p_gate and (p_key is null or l.scope_key = p_key));
end
$$;
