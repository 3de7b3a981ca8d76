-- Makes the limiters that partitions with new limits name, and that do not exist yet.
--
--   limiters   of each such partition
--   made_*     the limiters it has made, as gate and scope key
--
-- `take` may make the same limiter at the same time. The second of two transactions waits for the first one, as long as
-- lock_timeout allows, and then uses its limiter. A second limiter would give the tokens twice.
create or replace function _make_limiters(
  p_policy_id int, p_news news[], p_known known[],
  p_now timestamptz,
  out limiters limiter_ids[], out made_gates text[], out made_keys text[]
) language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$                                       -- as _route_partitions; `take` calls it first, and the session keeps the plan
declare
  v_changed arrivals[] := array(
    select n.newest from unnest(p_news) n
    left join unnest(p_known) p on p.id = n.partition_id
    where (n.newest).limits is not null and (p.id is null
      or (((n.newest).version, (n.newest).id) > (p.version, p.arrival_id) and (n.newest).limits is distinct from p.limits)));
  v_overridden boolean := exists (
    select from overrides o where o.policy_id = p_policy_id);
  v_missed boolean;
begin
  if v_changed = '{}' then
    limiters := '{}';
    return;
  end if;
  with wanted as materialized (
    select c.partition_id, c.id as arrival_id, c.version as arrival_version,
      l.value ->> 'gate' as gate, l.value ->> 'kind' as kind, _breadth(l.value ->> 'scope') as breadth,
      (l.value ->> 'position')::smallint as position,
      jsonb_populate_record(null::gate_numbers, l.value) as numbers,
      case when l.value ->> 'scope' = 'partition' then c.context end as context,
      _scope_key(l.value ->> 'scope', l.value ->> 'key', c.key) as scope_key
    from unnest(v_changed) c cross join lateral jsonb_array_elements(c.limits) l
  ),
  limiter as materialized (
    select distinct on (w.gate, w.scope_key) w.* from wanted w
    order by w.gate, w.scope_key, w.arrival_version desc, w.arrival_id desc
  ),
  there as materialized (
    -- "limit 1" makes it one look at the index each: else the planner read all limiters of the policy
    select l.id, l.gate, l.scope_key from limiter w
    cross join lateral (
      select x.id, x.gate, x.scope_key from limiters x
      where x.policy_id = p_policy_id and x.gate = w.gate and x.scope_key = w.scope_key limit 1
    ) l
  ),
  made as (
    insert into limiters (
      policy_id, gate, scope_key, kind, breadth, position, numbers, tokens, refilled_at, current_max, arrival_id, version)
    select p_policy_id, w.gate, w.scope_key, w.kind, w.breadth, w.position, _valid_numbers(w.numbers),
      case when (w.numbers).rate is null then null
        when v_overridden
          then _first_tokens(p_policy_id, w.gate, w.scope_key, w.numbers, w.context, p_now)
        else _throttle_capacity(w.numbers) end,
      case when (w.numbers).rate is not null then p_now end, (w.numbers).initial_max, w.arrival_id, w.arrival_version
    from limiter w
    where not exists (select from there t where t.gate = w.gate and t.scope_key = w.scope_key)
    on conflict (policy_id, gate, scope_key) do nothing
    returning id, gate, scope_key
  ),
  limiter_id as materialized (select * from there union all select * from made)
  select
    array(
      select row(w.partition_id, array_agg(i.id order by w.breadth, w.position))::limiter_ids
      from wanted w join limiter_id i on i.gate = w.gate and i.scope_key = w.scope_key group by w.partition_id),
    array_agg(m.gate), array_agg(m.scope_key),
    (select count(*) from limiter) > (select count(*) from limiter_id)
  into limiters, made_gates, made_keys, v_missed from made m;
  if v_missed then
    -- this statement cannot see what was made after it began: the next one can
    select m.limiters, _make_limiters.made_gates || m.made_gates, _make_limiters.made_keys || m.made_keys
    into limiters, made_gates, made_keys
    from _make_limiters(p_policy_id, p_news, p_known, p_now) m;
  end if;
end
$$;
