-- Verbs: contexts.

-- Changes what the context of partitions holds, such as {"plan": "pro"}: of one `partition`, of those whose context has the
-- values of `"where"`, or of all. Values that `context` does not name stay. Limits by context begin or end with it. The next
-- pass applies it. A job that is added later brings its own context.
--
-- `matched` counts the partitions that it is for; one without a job so far has no context. `dry_run` only counts, and also
-- what they have.
--
-- It refuses a policy with a limit, a scope or a weight that is a function of the context. SQL cannot call such a function,
-- and the partition would keep the limits of its old context. utils.refreshContext calls them, and so does the command.
--
-- It locks what _refresh_contexts locks. So two that each change a value of one context take turns, and both values stay.
create or replace function :DISPATCH_POLICY_SCHEMA.refresh_context(
  policy text, context jsonb, partition text default null, "where" jsonb default null, reason text default null,
  by text default null, dry_run boolean default false
) returns table (matched int, changed int, partitions int, staged int, in_flight int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies := _policy(refresh_context.policy);
  v_functions text; v_ids uuid[];
begin
  perform _check_isolation('refresh_context');
  if jsonb_typeof(refresh_context.context) is distinct from 'object' then
    raise exception 'dispatch_policy: refresh_context: context is %, expected an object, such as {"plan": "pro"}',
      coalesce(left(refresh_context.context::text, 60), 'null') using errcode = 'DPARG';
  elsif jsonb_typeof(refresh_context."where") <> 'object' then
    raise exception 'dispatch_policy: refresh_context: where is %, expected an object, such as {"account": "acme"}',
      left(refresh_context."where"::text, 60) using errcode = 'DPARG';
  end if;
  if refresh_context.dry_run is not true then
    perform _lock_turn(v_policy.id, 'limits');
    v_policy := _policy(refresh_context.policy);
  end if;
  v_functions := (
    select string_agg(f.name, ', ' order by f.place) from (
      select 'gate ' || quote_literal(g.value ->> 'name') as name, (g.value ->> 'position')::int as place
      from jsonb_array_elements(v_policy.definition -> 'gates') g
      where coalesce(jsonb_typeof(g.value -> 'values'), 'null') = 'null' or g.value ->> 'scope' = 'key'
      union all
      select case when v_policy.definition @? '$.functions.class' then 'class' else 'weight' end, -1
      where v_policy.definition ->> 'weight' is null) f);
  if v_functions is not null then
    raise exception 'dispatch_policy: refresh_context: policy % has functions of the context, which SQL cannot call: %. Call utils.refreshContext in a process that has the policy, or the command refresh-context with --config',
      quote_literal(v_policy.name), v_functions using errcode = 'DPARG';
  elsif refresh_context.dry_run then
    v_ids := array(
      select c.id from _contexts_to_refresh(v_policy.name, refresh_context.partition, refresh_context."where", null, null) c
      where c.fits);
    return query select cardinality(v_ids), 0, r.* from _reach(v_policy.name, v_ids) r; return;
  end if;
  with asked as materialized (
    select c.id, c.key, c.context, c.context || refresh_context.context as refreshed
    from _contexts_to_refresh(v_policy.name, refresh_context.partition, refresh_context."where", null, null) c where c.fits
  ),
  appended as (
    insert into arrivals (policy, partition_id, key, version, context, weight, limits)
    select v_policy.name, a.id, a.key, v_policy.generation, a.refreshed, (v_policy.definition ->> 'weight')::float8,
      _constant_limits(v_policy.definition)
    from asked a where a.refreshed <> a.context
    returning 1
  )
  select (select count(*) from asked), (select count(*) from appended) into matched, changed;
  perform _notify(v_policy.name);
  perform _audit('refresh_context', v_policy.name, refresh_context.partition, null, null, null,
    refresh_context.reason, refresh_context.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.refresh_context from public;
