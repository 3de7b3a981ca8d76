-- Contexts and limits of stored partitions are worked out anew.

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

-- Takes in a page of limits that were worked out again from stored contexts. They are appended as arrivals without work. A
-- partition that has got other limits since, or is about to, is left out: its own job has brought newer ones. Returns false, and
-- does nothing, if another process goes on from this place, or if another definition is in force by now.
--
-- The danger: during a deploy, processes of the version before add jobs all the time. A partition left out for one of those would
-- keep its old limits until a process of this version adds a job. So it is not left out.
--
--   p_after   the partition behind which the page begins; null: the first page
--   p_last    the last one of the page; null: the page is empty, and all is done
create or replace function _resolve_again(
  p_policy text, p_hash text, p_after uuid, p_last uuid, p_partitions json
) returns boolean language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  update definitions d set resolves = p_last is not null, resolved_to = p_last
  from policies p
  where p.name = p_policy and d.policy_id = p.id and d.hash = p_hash and d.resolves
    and d.resolved_to is not distinct from p_after;
  if not found then
    return false;
  end if;
  insert into arrivals (policy, partition_id, key, version, context, weight, limits)
  select p_policy, (k.value ->> 'id')::uuid, k.value ->> 'key', p.generation,
    (k.value -> 'context')::jsonb, (k.value ->> 'weight')::float8, (k.value -> 'limits')::jsonb
  from json_array_elements(p_partitions) k
  cross join policies p
  where p.name = p_policy and not exists (
      select from partitions q
      where q.id = (k.value ->> 'id')::uuid
        and q.version >= p.generation and q.arrival_id <> (k.value ->> 'arrivalId')::bigint)
    and (k.value ->> 'id')::uuid not in (
      select a.partition_id from arrivals a
      where a.policy = p_policy and a.version >= p.generation and a.limits is not null);
  return true;
end
$$;

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
      and (p_partition is null or a.partition_id = any(_lanes(p_policy, p_partition, true)))
  ),
  routed as materialized (
    select q.id as partition_id, q.key, q.context, q.version, q.arrival_id
    from partitions q
    where q.policy_id = (select p.id from policies p where p.name = p_policy)
      and q.arrival_id > 0 and (p_after is null or q.id > p_after)
      and (p_partition is null or q.id = any(_lanes(p_policy, p_partition)))
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

-- Takes in contexts that changed, with the limits that were worked out from them, as arrivals without work. Returns how many
-- differ from what was there. `stale`: the keys of those that have got another context since it was read. The caller reads them
-- again.
--
-- Two callers may each change a value of the same context. So they take turns: the second finds that its context is stale.
create or replace function _refresh_contexts(
  p_policy text, p_hash text, p_partitions json, p_reason text, p_by text, out changed int, out stale text[]
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy policies := _policy(p_policy);
begin
  perform _check_isolation('refresh_context');
  perform _lock_turn(v_policy.id, 'limits');
  v_policy := _policy(p_policy);
  perform _refuse_definition(v_policy, p_hash);
  with given as materialized (
    select (k.value ->> 'id')::uuid as partition_id, k.value ->> 'key' as key,
      (k.value -> 'context')::jsonb as context, (k.value ->> 'weight')::float8 as weight,
      (k.value -> 'limits')::jsonb as limits, (k.value ->> 'arrivalId')::bigint as arrival_id
    from json_array_elements(p_partitions) k
  ),
  known as (
    select a.partition_id, a.version, a.id, coalesce(a.context, '{}') as context, a.limits, a.weight
    from arrivals a
    where a.policy = p_policy and a.limits is not null and a.partition_id in (select g.partition_id from given g)
    union all
    select q.id, q.version, q.arrival_id, q.context, q.limits, q.weight from partitions q
    where q.id in (select g.partition_id from given g)
  ),
  newest as materialized (
    select distinct on (k.partition_id) k.* from known k order by k.partition_id, k.version desc, k.id desc
  ),
  appended as (
    insert into arrivals (policy, partition_id, key, version, context, weight, limits)
    select p_policy, g.partition_id, g.key, v_policy.generation, g.context, g.weight, g.limits
    from given g join newest n on n.partition_id = g.partition_id and n.id = g.arrival_id
    where (g.context, g.limits, g.weight) is distinct from (n.context, n.limits, n.weight)
    returning 1
  )
  select (select count(*) from appended), array(
    select g.key from given g left join newest n on n.partition_id = g.partition_id
    where n.id is distinct from g.arrival_id) into changed, stale;
  perform _notify(p_policy);
  perform _audit('refresh_context', p_policy,
    case when json_array_length(p_partitions) = 1 then p_partitions #>> '{0,key}' end, null, null, null, p_reason, p_by,
    json_array_length(p_partitions), changed);
end
$$;

-- Raises if the caller has another definition of the policy than the one in force. It would work out other limits.
create or replace function _refuse_definition(
  p_policy policies, p_hash text
) returns void language plpgsql as $$
begin
  if (p_policy).definition_hash <> p_hash then
    raise exception 'dispatch_policy: refresh_context: this process has another definition of policy % than the one in force. Call it in a process that has that one',
      quote_literal((p_policy).name) using errcode = 'DPARG';
  end if;
end
$$;

-- What _refresh_contexts would concern: the known ones of these partitions, with their jobs. It locks nothing, and refuses what
-- that would refuse.
create or replace function _refresh_reach(
  p_policy text, p_hash text, p_partition_ids uuid[], out partitions int, out staged int, out in_flight int
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  perform _refuse_definition(_policy(p_policy), p_hash);
  select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
  from _reach(p_policy, p_partition_ids) r;
end
$$;
