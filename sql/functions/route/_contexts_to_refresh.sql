-- A page of a policy's partitions with their newest contexts, also those that are not routed yet: at most `p_limit`, and one
-- _portion of contexts; null: all. `fits`: whether the context has the values in `p_where`. `arrival_id` is the arrival that
-- brought the context.
create or replace function _contexts_to_refresh(
  p_policy text, p_partition text, p_where jsonb, p_after uuid, p_limit int
) returns table (id uuid, key text, context jsonb, arrival_id bigint, fits boolean) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  with pending as materialized (
    select a.partition_id, a.key, coalesce(a.context, '{}') as context, a.version, a.id
    from arrivals a
    where a.policy = p_policy and a.limits is not null and (p_after is null or a.partition_id > p_after)
      and (p_partition is null or a.partition_id = _partition_id(p_policy, p_partition))
  ),
  routed as materialized (
    select q.id as partition_id, q.key, q.context, q.version, q.arrival_id
    from partitions q
    where q.policy_id = (select p.id from policies p where p.name = p_policy)
      and q.arrival_id > 0 and (p_after is null or q.id > p_after)
      and (p_partition is null or q.id = _partition_id(p_policy, p_partition))
    order by q.id limit p_limit
  ),
  newest as (
    select distinct on (n.partition_id) n.* from (select * from pending union all select * from routed) n
    order by n.partition_id, n.version desc, n.id desc
  )
  select w.partition_id, w.key, w.context, w.id, p_where is null or w.context @> p_where
  from (
    select n.*, sum(octet_length(n.context::text)) over (
      order by n.partition_id rows between unbounded preceding and 1 preceding) as bytes_before
    from (select * from newest n order by n.partition_id limit p_limit) n
  ) w
  where p_limit is null or _portion(w.bytes_before) = 0
  order by w.partition_id;
$$;
