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
