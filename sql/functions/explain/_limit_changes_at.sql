-- When the first of a job's limits changes, because an override begins or ends after now. Null: none does. One that another
-- override hides changes nothing: _override_id_at decides.
create or replace function _limit_changes_at(
  p_policy_id int, p_context jsonb, p_gates jsonb, p_now timestamptz
) returns timestamptz language plpgsql stable as $$
begin
  return (
    select min(t.at) from overrides o
    join lateral (
      select g ->> 'gate' as gate, coalesce(g ->> 'key', '') as key,
        case when g ->> 'scope' = 'partition' then p_context end as context   -- a shared gate has no single one
      from jsonb_array_elements(p_gates) g
    ) g on g.gate = o.gate and (o.scope_key is null or o.scope_key = g.key)   -- of many keys only this one's
    cross join lateral (values (o.from_at), (o.until_at)) t (at)
    where o.policy_id = p_policy_id and isfinite(t.at) and t.at > p_now
      and _override_id_at(p_policy_id, g.gate, g.key, g.context, t.at, t.at) is distinct from
        _override_id_at(p_policy_id, g.gate, g.key, g.context, p_now, p_now));
end
$$;
