-- An operator's temporary limit for one scope key of a gate, or for all of them (`key` null), in the caller's
-- transaction: in force from its commit (or `from`) until `until` or clear_limit. From its beginning it replaces what was
-- set for the same key, or for all of them, before; also what was to begin before its end. `matched` counts the limiters
-- that have the key by now: 0 for one that is still to come (the limit holds then), or that is misspelt.
--
-- It locks no limiter: an open transaction would stop all who use it. The router tells those who wait. Only another change
-- of the policy's limits waits for this one.
--
--   select * from dispatch_policy.set_limit('fetch_endpoint', 'account', '{"max": 0}', key => 'acct:1');
create or replace function :DISPATCH_POLICY_SCHEMA.set_limit(
  policy text, gate text, set jsonb, key text default null, "from" timestamptz default null,
  until timestamptz default null, reason text default null, by text default null
) returns table (matched int, changed int) language plpgsql
security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies := :DISPATCH_POLICY_SCHEMA._policy(set_limit.policy);
  v_now timestamptz;
begin
  perform :DISPATCH_POLICY_SCHEMA._check_limit(v_policy, set_limit.gate, coalesce(set_limit.set, 'null'));
  if coalesce(set_limit."from", '-infinity') >= coalesce(set_limit.until, 'infinity') then
    raise exception 'dispatch_policy: set_limit: from % is not before until %', set_limit."from", set_limit.until
      using errcode = 'DPARG';
  end if;
  perform :DISPATCH_POLICY_SCHEMA._take_turn(v_policy.id, 'limits');
  v_now := clock_timestamp();
  if set_limit.until <= v_now then
    raise exception 'dispatch_policy: set_limit: until is %, expected a time to come: by the database''s clock it is %',
      set_limit.until, v_now using errcode = 'DPARG', hint = 'clear_limit ends what is in force.';
  end if;
  perform :DISPATCH_POLICY_SCHEMA._end_overrides(
    v_policy.id, set_limit.gate, set_limit.key, set_limit."from", set_limit.until, v_now);
  insert into :DISPATCH_POLICY_SCHEMA._private_overrides (
    policy_id, gate, scope_key, set, from_at, until_at, set_at, announce_at, set_by, reason)
  values (v_policy.id, set_limit.gate, set_limit.key, set_limit.set, coalesce(set_limit."from", '-infinity'),
    coalesce(set_limit.until, 'infinity'), v_now, coalesce(set_limit."from", '-infinity'), coalesce(set_limit.by, session_user), set_limit.reason);
  matched := (
    select count(*) from :DISPATCH_POLICY_SCHEMA._private_limiters l
    where l.policy_id = v_policy.id and l.gate = set_limit.gate and (set_limit.key is null or l.scope_key = set_limit.key));
  changed := matched;
  perform :DISPATCH_POLICY_SCHEMA._notify(v_policy.name);
  perform :DISPATCH_POLICY_SCHEMA._audit('set_limit', set_limit.policy, null, set_limit.gate, set_limit.key,
    jsonb_build_object('set', set_limit.set, 'from', set_limit."from", 'until', set_limit.until), set_limit.reason,
    set_limit.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.set_limit from public;

-- Takes what was set for a key, or for all of them, back: what is in force, and what is to come.
create or replace function :DISPATCH_POLICY_SCHEMA.clear_limit(
  policy text, gate text, key text default null, reason text default null, by text default null
) returns table (matched int, changed int) language sql
security definer set search_path = pg_catalog, pg_temp as $$
  select * from :DISPATCH_POLICY_SCHEMA._clear_limit(
    clear_limit.policy, clear_limit.gate, clear_limit.key, clear_limit.reason, clear_limit.by);
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.clear_limit from public;

create or replace function :DISPATCH_POLICY_SCHEMA._clear_limit(
  p_policy text, p_gate text, p_key text, p_reason text, p_by text, p_now timestamptz default null
) returns table (matched int, changed int) language plpgsql as $$
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies := :DISPATCH_POLICY_SCHEMA._policy(p_policy);
begin
  perform :DISPATCH_POLICY_SCHEMA._check_limit(v_policy, p_gate, null);
  perform :DISPATCH_POLICY_SCHEMA._take_turn(v_policy.id, 'limits');
  changed := :DISPATCH_POLICY_SCHEMA._end_overrides(
    v_policy.id, p_gate, p_key, null, null, coalesce(p_now, clock_timestamp()));
  matched := changed;
  perform :DISPATCH_POLICY_SCHEMA._notify(v_policy.name);
  perform :DISPATCH_POLICY_SCHEMA._audit(
    'clear_limit', p_policy, null, p_gate, p_key, null, p_reason, p_by, matched, changed);
  return next;
end
$$;

-- Ends the overrides of a key, or of all of them, from `p_from` on; null: at once. Those to come stay where they begin at
-- `p_until` or later. Returns how many it ended that were in force or to come.
create or replace function :DISPATCH_POLICY_SCHEMA._end_overrides(
  p_policy_id int, p_gate text, p_key text, p_from timestamptz, p_until timestamptz, p_now timestamptz
) returns int language plpgsql as $$
declare
  v_at timestamptz := coalesce(p_from, p_now);
  v_ended int;
begin
  with current as (
    select o.id, o.from_at >= v_at as is_to_come, o.until_at > p_now as counts
    from :DISPATCH_POLICY_SCHEMA._private_overrides o
    where o.policy_id = p_policy_id and o.gate = p_gate and o.scope_key is not distinct from p_key
      and not o.taken_back and o.from_at < coalesce(p_until, 'infinity')
    for update
  ),
  dropped as (
    delete from :DISPATCH_POLICY_SCHEMA._private_overrides o
    where o.id in (select c.id from current c where c.is_to_come)
  ),
  ended as (
    update :DISPATCH_POLICY_SCHEMA._private_overrides o set
      until_at = least(o.until_at, v_at), taken_back = p_from is null,
      announce_at = case when not c.counts then o.announce_at when p_from is null then '-infinity'
        else least(o.announce_at, o.until_at, v_at) end
    from current c where o.id = c.id and not c.is_to_come
  )
  select count(*) filter (where c.counts) into v_ended from current c;
  return v_ended;
end
$$;

-- Raises unless the policy has the gate and the gate has these values; `p_set` null checks the gate only.
create or replace function :DISPATCH_POLICY_SCHEMA._check_limit(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_gate text, p_set jsonb
) returns void language plpgsql as $$
declare
  v_kind text;
  v_sliding boolean;
  v_allowed text[];
  v_key text;
  v_value jsonb;
begin
  select g.value ->> 'kind', coalesce((g.value #>> '{values,sliding}')::boolean, false) into v_kind, v_sliding
  from jsonb_array_elements((p_policy).definition -> 'gates') g
  where g.value ->> 'name' = p_gate;
  if v_kind is null then
    raise exception 'dispatch_policy: policy % has no gate %; its gates: %', quote_literal((p_policy).name),
      coalesce(quote_literal(p_gate), 'null'),
      coalesce((select string_agg(quote_literal(g.value ->> 'name'), ', ')
        from jsonb_array_elements((p_policy).definition -> 'gates') g), 'none') using errcode = 'DPARG';
  end if;
  if p_set is null then
    return;
  end if;
  v_allowed := case v_kind
    when 'throttle' then case when v_sliding or exists (
        select from :DISPATCH_POLICY_SCHEMA._private_limiters l
        where l.policy_id = (p_policy).id and l.gate = p_gate and l.sliding)
      then '{rate,per}' else '{rate,per,burst}' end
    when 'concurrency' then '{max}'
    else '{initial_max,min,max,target_lag_ms}' end;
  if jsonb_typeof(p_set) <> 'object' or p_set = '{}' then
    raise exception 'dispatch_policy: set_limit: set is %, expected an object with some of %', p_set,
      array_to_string(v_allowed, ', ') using errcode = 'DPARG';
  end if;
  for v_key, v_value in select * from jsonb_each(p_set) loop
    if v_key <> all (v_allowed) then
      raise exception 'dispatch_policy: set_limit: % has no value %; it has %', v_kind, quote_literal(v_key),
        array_to_string(v_allowed, ', ') using errcode = 'DPARG';
    end if;
    if jsonb_typeof(v_value) <> 'number' or not (case
        when v_key in ('max', 'min', 'initial_max') then v_value::text ~ '^[0-9]{1,9}$'
        when v_key = 'per' then v_value::numeric between 1e-12 and 1e9
        when v_key = 'target_lag_ms' then v_value::numeric between 1e-12 and 1e12
        when v_key = 'burst' then v_value::numeric between 0 and 1e12
        else abs(v_value::numeric) = 0 or abs(v_value::numeric) between 1e-12 and 1e12 end) then
      raise exception 'dispatch_policy: set_limit: % is %, expected %', v_key, left(v_value::text, 60),
        case when v_key in ('max', 'min', 'initial_max') then 'a whole number, 0 to 999999999'
          when v_key = 'per' then 'seconds, more than 0 (1e-12 to 1e9)'
          when v_key = 'target_lag_ms' then 'milliseconds, more than 0 (1e-12 to 1e12)'
          else 'a number (0, or 1e-12 to 1e12)' end using errcode = 'DPARG';
    end if;
  end loop;
  if (p_set ->> 'min')::int > (p_set ->> 'max')::int then
    raise exception 'dispatch_policy: set_limit: set is %, expected a min of no more than max', p_set
      using errcode = 'DPARG';
  end if;
end
$$;
