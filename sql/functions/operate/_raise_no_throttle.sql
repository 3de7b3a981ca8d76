-- Raises, for `take` and `sync`: this gate has no bucket. A gate that is a throttle now may have limiters of its earlier
-- kind, if its numbers depend on the job. Such a limiter changes with the next job of its key.
create or replace function _raise_no_throttle(
  p_verb text, p_policy policies, p_gate text
) returns void language plpgsql as $$
declare
  v_throttles text[] := array(
    select g.value ->> 'name' from jsonb_array_elements((p_policy).definition -> 'gates') g
    where g.value -> 'overrides' ? 'rate');
begin
  raise exception 'dispatch_policy: %: gate % of policy % is no throttle%', p_verb, quote_literal(p_gate),
    quote_literal((p_policy).name),
    case when p_gate = any(v_throttles) then ' for this key yet. Add a job with the key first'
      else format(', expected one of: %s',
        coalesce((select string_agg(quote_literal(t), ', ') from unnest(v_throttles) t), 'none, the policy has no throttle'))
    end using errcode = 'DPARG';
end
$$;
