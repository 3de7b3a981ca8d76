-- Turns arrivals into partitions and limiters. A policy has one router at a time. Tick loops call it in a transaction of its
-- own; SQL tick and SQL admit go on to admit in the same one.
--
-- Returns -1 if another router is at work: the caller comes back, because arrivals it was notified of may be left. Else it
-- returns how many arrivals it consumed, and one more if overrides are still to be announced. Of a policy that is switched
-- off, the partitions that it woke count as well. `p_max` or more means call again. 0 means that nothing is left that it can
-- do. Arrivals of locked rows stay for a later routing step.
--
-- An open transaction delays only what it has locked. The router never waits for a partition: it skips the arrivals of a
-- locked one, and reads on. Limits come after, in a later statement: limiters ascending, and only those whose numbers
-- differ and come from an earlier arrival. It waits for these only for a moment (see _route_batch).
create or replace function _route(
  p_policy text, p_now timestamptz, p_max int
) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off   -- planned at each call, an idle one took 9 ms
set lock_timeout = '2s'
as $$
declare
  v_policy policies;
  v_ids bigint[];
  v_partition_ids uuid[];
  v_pause_ids bigint[];
  v_left_ids bigint[];
  v_full boolean;
  v_is_cut boolean := false;   -- there are more, because their contexts fill a portion
  v_has_all boolean;   -- no arrival that there was is missing in the batch
  v_last bigint;   -- the newest arrival that has no older one which was not read
  v_after bigint := 0;
  v_consumed int := 0;
begin
  perform _check_isolation('routing');
  select * into v_policy from policies p where p.name = p_policy;
  if v_policy.id is null then
    perform _unknown_policy(p_policy);
  end if;
  if not _try_lock_turn(v_policy.id, 'route') then
    return -1;
  end if;
  -- mostly one batch: another follows if one was full, and part of it had to be left; each has all stops
  for v_batch in 1..10 loop
    select array_agg(a.id) filter (where a.is_read), array_agg(distinct a.partition_id) filter (where a.is_read),
      array_agg(a.id) filter (where a.is_read and a.is_pause), not bool_and(a.is_read), count(*) = p_max
    into v_ids, v_partition_ids, v_pause_ids, v_is_cut, v_full from (
      select a.id, a.partition_id, a.pause is not null as is_pause,
        _portion(sum(octet_length(a.context::text)) over (
          order by a.id rows between unbounded preceding and 1 preceding)) = 0 as is_read
      from (
        select x.id, x.partition_id, x.pause, x.context from arrivals x
        where x.policy = p_policy and x.id > v_after order by x.id limit p_max) a
    ) a;
    exit when v_ids is null;
    v_full := v_full or v_is_cut;
    v_has_all := v_batch = 1 and not v_full;
    if not v_has_all then
      if v_batch = 1 then
        select b.ids, b.last into v_ids, v_last from _oldest_and_newest(p_policy, v_ids) b;
      else
        v_last := (select max(u.id) from unnest(v_ids) u (id));
      end if;
      -- Without a stop that came later, its partition's jobs would go although somebody has paused it.
      v_ids := v_ids || array(
        select a.id from arrivals a
        where a.policy = p_policy and a.pause is not null and (a.id in (select unnest(v_ids))) is not true);
      select array_agg(distinct a.partition_id), array_agg(a.id) filter (where a.pause is not null)
      into v_partition_ids, v_pause_ids
      from arrivals a where a.policy = p_policy and a.id = any(v_ids);
    end if;
    v_left_ids := _route_batch(
      v_policy, v_ids, v_partition_ids, v_pause_ids, coalesce(p_now, clock_timestamp()), v_has_all);
    v_consumed := v_consumed + cardinality(v_ids) - cardinality(v_left_ids);
    exit when v_left_ids = '{}' or not v_full or v_consumed >= p_max;
    v_consumed := v_consumed + _merge_arrivals(p_policy, v_left_ids);
    v_after := v_last;
  end loop;
  if v_is_cut and v_consumed > 0 then
    v_consumed := greatest(v_consumed, p_max);
  end if;
  if v_policy.max_pending_in_all is not null then
    perform _add_up_pending(p_policy);
  end if;
  if not v_policy.enabled then
    return v_consumed + _wake_all(v_policy, p_max);
  end if;
  -- two looks, each by its index: there may be an override for each of 10,000 accounts
  if exists (
    select from overrides o
    where o.policy_id = v_policy.id and least(o.announce_at, o.announce_again_at) <= coalesce(p_now, clock_timestamp())
  ) or exists (
    select from overrides o where o.policy_id = v_policy.id and o.to_announce <> '{}'
  ) then
    return v_consumed + _announce_overrides(v_policy, coalesce(p_now, clock_timestamp()))::int;
  end if;
  return v_consumed;
end
$$;
