-- The policies that a verb applies to: one, or all if the caller said so explicitly.
create or replace function _targets(p_policy text, p_all boolean)
returns setof policies language plpgsql as $$
#variable_conflict use_column
begin
  if (p_policy is null) = not coalesce(p_all, false) then
    raise exception 'dispatch_policy: name a policy, or say "all" => true; got policy %, all %',
      coalesce(quote_literal(p_policy), 'null'), coalesce(p_all::text, 'null') using errcode = 'DPARG';
  end if;
  if p_policy is not null then
    perform _policy(p_policy);
  end if;
  return query select p.* from policies p
    where p_policy is null or p.name = p_policy order by p.id;
end
$$;
