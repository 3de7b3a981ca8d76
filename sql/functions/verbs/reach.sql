-- Verbs: whom a verb concerns, and what it would do.

-- The dry run of a verb for a partition, a policy or all policies: how many policies or partitions match, and what they have.
create or replace function _would_reach(
  p_policy text, p_partition text, p_all boolean, out matched int, out partitions int, out staged int, out in_flight int
) language plpgsql as $$
begin
  if p_partition is not null then
    perform _policy(p_policy);
    select r.partitions, r.partitions, r.staged, r.in_flight into matched, partitions, staged, in_flight
    from _reach(
      p_policy, array[_partition_id(p_policy, p_partition)]) r;
  else
    select count(*), coalesce(sum(r.partitions), 0), coalesce(sum(r.staged), 0), coalesce(sum(r.in_flight), 0)
    into matched, partitions, staged, in_flight
    from _targets(p_policy, p_all) t
    cross join lateral _reach(t.name, null) r;
  end if;
end
$$;

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
