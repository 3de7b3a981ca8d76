-- Raises unless the policy has the gate and the gate takes these values. `p_set` null checks only the gate. The gate's
-- definition says which values it takes.
create or replace function _check_limit(
  p_policy policies, p_gate text, p_set jsonb
) returns void language plpgsql as $$
declare
  v_gate jsonb;
  v_names text;
  v_key text;
  v_value jsonb;
  v_rule record;
begin
  select g.value into v_gate from jsonb_array_elements((p_policy).definition -> 'gates') g
  where g.value ->> 'name' = p_gate;
  if v_gate is null then
    raise exception 'dispatch_policy: policy % has no gate %; its gates: %', quote_literal((p_policy).name),
      coalesce(quote_literal(p_gate), 'null'),
      coalesce((select string_agg(quote_literal(g.value ->> 'name'), ', ')
        from jsonb_array_elements((p_policy).definition -> 'gates') g), 'none') using errcode = 'DPARG';
  end if;
  if p_set is null then
    return;
  end if;
  v_names := (select string_agg(k, ', ' order by k) from jsonb_object_keys(v_gate -> 'overrides') k);
  if jsonb_typeof(p_set) <> 'object' or p_set = '{}' then
    raise exception 'dispatch_policy: set_limit: set is %, expected an object with some of %', p_set, v_names
      using errcode = 'DPARG';
  end if;
  for v_key, v_value in select * from jsonb_each(p_set) loop
    if not v_gate -> 'overrides' ? v_key then
      raise exception 'dispatch_policy: set_limit: % has no value %; it has %', v_gate ->> 'kind', quote_literal(v_key),
        v_names using errcode = 'DPARG';
    end if;
    select * into v_rule from jsonb_to_record(v_gate #> array['overrides', v_key])
      as r (expects text, least numeric, most numeric, whole boolean, zero boolean, signed boolean);
    if jsonb_typeof(v_value) <> 'number' or not (
        (v_rule.whole is not true or v_value::text ~ '^[0-9]+$')
        and ((v_rule.zero and v_value::numeric = 0)
          or case when v_rule.signed then abs(v_value::numeric) else v_value::numeric end
            between v_rule.least and v_rule.most)) then
      raise exception 'dispatch_policy: set_limit: % is %, expected %', v_key, left(v_value::text, 60), v_rule.expects
        using errcode = 'DPARG';
    end if;
  end loop;
  if (p_set ->> 'min')::int > (p_set ->> 'max')::int then
    raise exception 'dispatch_policy: set_limit: set is %, expected a min of no more than max', p_set
      using errcode = 'DPARG';
  end if;
end
$$;
