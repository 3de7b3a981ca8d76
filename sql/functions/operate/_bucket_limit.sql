-- The limit of the bucket that a verb names, as a job would bring it. Null if the gate's numbers depend on the job. Raises
-- if the gate is no throttle, or the key does not fit its scope.
create or replace function _bucket_limit(
  p_verb text, p_policy policies, p_gate text, p_key text
) returns jsonb language plpgsql as $$
declare
  v_gate jsonb := (
    select g.value from jsonb_array_elements((p_policy).definition -> 'gates') g where g.value ->> 'name' = p_gate);
begin
  if not v_gate -> 'overrides' ? 'rate' then
    perform _raise_no_throttle(p_verb, p_policy, p_gate);
  elsif v_gate ->> 'scope' = 'policy' and p_key <> '' then
    raise exception 'dispatch_policy: %: key is %, expected none: gate % counts over the whole policy',
      p_verb, quote_literal(left(p_key, 60)), quote_literal(p_gate) using errcode = 'DPARG';
  elsif v_gate ->> 'scope' <> 'policy' and p_key is null then
    raise exception 'dispatch_policy: %: key is null, expected a scope key: gate % has a bucket for each',
      p_verb, quote_literal(p_gate) using errcode = 'DPARG';
  end if;
  perform _check_key(p_key);
  if jsonb_typeof(v_gate -> 'values') <> 'object' then
    return null;
  end if;
  return _constant_limits(jsonb_build_object('gates', jsonb_build_array(v_gate))) -> 0
    || jsonb_build_object('key', coalesce(p_key, ''));
end
$$;
