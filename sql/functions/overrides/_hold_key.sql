-- Stops a key of a gate until a time: an override of 0 above the key's other limits, which count again at its end. Of two
-- holds the one that ends later counts. set_limit and clear_limit of the key end it. Of a shadow gate it stops the key as
-- well, because somebody has said so: until its end that key's limiter is real.
--
--   p_key       null: the gate counts over the policy
--   p_dry_run   only counts, as that of set_limit
create or replace function _hold_key(
  p_policy text, p_gate text, p_key text, p_until timestamptz, p_reason text, p_by text, p_now timestamptz,
  p_dry_run boolean, out matched int, out changed int, out stored boolean, out partitions int, out staged int, out in_flight int
) language plpgsql as $$
declare
  v_policy policies := _policy(p_policy);
  v_gate jsonb := (
    select g.value from jsonb_array_elements(v_policy.definition -> 'gates') g where g.value ->> 'name' = p_gate);
  v_key text := coalesce(p_key, '');
begin
  perform _check_limit(v_policy, p_gate, null);
  if (p_key is null) <> (v_gate ->> 'scope' = 'policy') then
    raise exception 'dispatch_policy: hold: key is %, expected %', coalesce(quote_literal(p_key), 'null'),
      case when p_key is null then format('a scope key of gate %L, which counts by %s', p_gate, v_gate ->> 'scope')
        else format('none: gate %L counts over the policy', p_gate) end using errcode = 'DPARG';
  end if;
  if not p_dry_run then
    perform _lock_turn(v_policy.id, 'limits');
  end if;
  matched := _limit_matches(v_policy.id, p_gate, v_key, null);
  stored := matched = 0;
  if p_dry_run then
    changed := 0;
    select r.partitions, r.staged, r.in_flight into partitions, staged, in_flight
    from _limit_reach(v_policy, p_gate, v_key, null) r;
    return;
  end if;
  changed := matched;
  -- one row for each key, however many jobs are refused
  update overrides o set
    until_at = greatest(o.until_at, p_until),
    set_by = case when o.until_at < p_until then coalesce(p_by, session_user) else o.set_by end,
    reason = case when o.until_at < p_until then p_reason else o.reason end,
    announce_at = case when o.announce_at = o.until_at then greatest(o.until_at, p_until) else o.announce_at end
  where o.policy_id = v_policy.id and o.gate = p_gate and o.scope_key = v_key and o.is_hold and not o.taken_back
    and o.until_at > p_now;
  if not found then
    insert into overrides (
      policy_id, gate, scope_key, set, until_at, set_at, set_by, reason, is_hold)
    values (v_policy.id, p_gate, v_key,
      case when v_gate -> 'overrides' ? 'rate' then '{"rate": 0}'::jsonb else '{"max": 0}' end
        || case when v_gate #>> '{constants,shadow}' = 'true' then '{"shadow": false}'::jsonb else '{}' end,
      p_until, p_now, coalesce(p_by, session_user), p_reason, true);
  end if;
  perform _notify(v_policy.name);
end
$$;
