-- The contexts that partitions still have, of those whose arrivals change which limits by context apply to them. Null: of
-- none. A rate brings nothing for the time before it, so their buckets are brought to now by the context before.
create or replace function _contexts_before(
  p_policy policies, p_arrivals arrivals[]
) returns jsonb language plpgsql as $$
begin
  if not exists (
    select from overrides o
    where o.policy_id = (p_policy).id and o.context_pair is not null
  ) then
    return null;
  end if;
  return (
    select jsonb_object_agg(q.id, q.context)
    from (
      select distinct on (a.partition_id) a.partition_id, a.id, a.version, a.context from unnest(p_arrivals) a
      where a.limits is not null order by a.partition_id, a.version desc, a.id desc
    ) n
    join partitions q
      on q.id = n.partition_id and (n.version, n.id) > (q.version, q.arrival_id)
    where n.context <> q.context and exists (
      select from unnest(
        _pairs_of(q.context) || _pairs_of(n.context)) u (pair)
      cross join lateral (
        select x.context from overrides x
        where x.policy_id = (p_policy).id and x.context_pair = u.pair offset 0   -- as in _override_now
      ) o
      where (q.context @> o.context) <> (n.context @> o.context)));
end
$$;
