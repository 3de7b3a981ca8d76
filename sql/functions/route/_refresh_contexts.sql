-- Takes in contexts that changed, with the limits that were worked out from them. They are appended as arrivals without work,
-- and the router applies them like any other. Returns how many differ from what was there. `stale`: the keys of those that have
-- got another context since it was read. The caller reads them again.
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
    select _partition_id(p_policy, k.value ->> 'key') as partition_id, k.value ->> 'key' as key,
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
