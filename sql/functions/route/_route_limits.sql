-- Gives limiters that existed before (all but `p_made_*`) the numbers that the newest arrivals carry. A partition's own
-- limiters follow the partition. A shared one follows the newest arrival of any of its partitions. A changed limiter gets a
-- freed row.
--
-- An arrival that was staged earlier and commits late changes nothing, nor does one that is routed after newer ones in a flood.
-- There is one exception: if the later one came from another partition and confirmed the numbers, the late one counts until
-- the next arrival. To record each confirmation would write a busy limiter in every routing step.
--
-- A gate that has changed its kind under its name starts like a new one, but keeps what its bucket or window had left.
-- Otherwise two deployments that do not agree on the kind could fill it again and again.
--
-- A partition's own limiter also changes if other limits by context apply to it now. `p_contexts` has the contexts before, by
-- partition.
create or replace function _route_limits(
  p_policy policies, p_arrivals arrivals[],
  p_known known[], p_made_gates text[], p_made_keys text[], p_contexts jsonb, p_now timestamptz
) returns void language plpgsql
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_changes jsonb;
begin
  with newest as materialized (
    select distinct on (a.partition_id) a.* from unnest(p_arrivals) a
    -- not an arrival older than the partition's: a limiter does not record arrivals that merely confirmed its numbers
    left join unnest(p_known) k on k.id = a.partition_id
    where a.limits is not null and (k.id is null or (a.version, a.id) >= (k.version, k.arrival_id))
    order by a.partition_id, a.version desc, a.id desc
  ),
  wanted as materialized (
    select distinct on (l.gate, l.key) l.gate, l.key, l.declared, l.context, n.id as arrival_id, n.version
    from newest n
    cross join lateral (
      select x.value ->> 'gate' as gate, x.value as declared,
        _scope_key(x.value ->> 'scope', x.value ->> 'key', n.key) as key,
        case when x.value ->> 'scope' = 'partition' then p_contexts -> n.partition_id::text end as context
      from jsonb_array_elements(n.limits) x
    ) l
    where (l.gate, l.key) not in (select * from unnest(p_made_gates, p_made_keys))
    order by l.gate, l.key, n.version desc, n.id desc
  )
  select jsonb_object_agg(l.id, jsonb_build_object(
    'arrival_id', w.arrival_id, 'version', w.version, 'limit', w.declared, 'context', w.context))
  into v_changes
  from wanted w
  -- "limit 1" makes it one look at the index each: else the planner read all limiters of the policy
  cross join lateral (
    select x as limiter, x.id, x.version, x.arrival_id from limiters x
    where x.policy_id = (p_policy).id and x.gate = w.gate and x.scope_key = w.key limit 1
  ) l
  where (w.version, w.arrival_id) > (l.version, l.arrival_id)
    and (_numbers_differ(l.limiter, w.declared) or w.context is not null);
  if v_changes is null then
    return;
  end if;
  perform _change_limiters(p_policy, v_changes, p_arrivals, p_now);
end
$$;
