-- A page of a policy's partitions whose limits are to be worked out again from their stored contexts: at most `p_limit`, and
-- one _portion of contexts. `arrival_id` is the arrival that brought the context.
create or replace function _partitions_to_resolve(p_policy text, p_after uuid, p_limit int)
returns table (id uuid, key text, context jsonb, arrival_id bigint) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select w.id, w.key, w.context, w.arrival_id
  from (
    select q.*, sum(octet_length(q.context::text)) over (
      order by q.id rows between unbounded preceding and 1 preceding) as bytes_before
    from (
      select q.id, q.key, q.context, q.arrival_id from partitions q
      where q.policy_id = (select p.id from policies p where p.name = p_policy)
        and (p_after is null or q.id > p_after)
      order by q.id limit p_limit) q
  ) w
  where _portion(w.bytes_before) = 0 order by w.id;
$$;
