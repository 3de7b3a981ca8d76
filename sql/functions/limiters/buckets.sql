-- The bucket that `take` and `sync` draw from, without a pass.

-- Locks the bucket that a verb, `take` or `sync`, names, and returns what it has then. A bucket that no job has used yet is made
-- here, full, as the router makes it. Raises if the gate is no throttle, the key does not fit its scope, or only a job can tell
-- the numbers of a new bucket.
--
--   at       the time after the lock: whoever reads the clock before may wait, and would have the bucket gain twice
--   tokens   what it has, also if it is a shadow
create or replace function _bucket_now(
  p_verb text, p_policy policies, p_gate text, p_key text, p_now timestamptz,
  out id bigint, out at timestamptz, out limiter room_before, out tokens float8
) language plpgsql as $$
declare
  v_gate jsonb := (
    select g.value from jsonb_array_elements((p_policy).definition -> 'gates') g where g.value ->> 'name' = p_gate);
  v_limit jsonb;   -- as a job would bring it; null: the gate's numbers depend on the job
  v_version int := (p_policy).generation;
  v_limiter limiters;
begin
  if not v_gate -> 'overrides' ? 'rate' then
    raise exception 'dispatch_policy: %: gate % of policy % is no throttle, expected one of: %', p_verb, quote_literal(p_gate),
      quote_literal((p_policy).name), coalesce((
        select string_agg(quote_literal(g.value ->> 'name'), ', ') from jsonb_array_elements((p_policy).definition -> 'gates') g
        where g.value -> 'overrides' ? 'rate'), 'none, the policy has no throttle') using errcode = 'DPARG';
  elsif v_gate ->> 'scope' = 'policy' and p_key <> '' then
    raise exception 'dispatch_policy: %: key is %, expected none: gate % counts over the whole policy',
      p_verb, quote_literal(left(p_key, 60)), quote_literal(p_gate) using errcode = 'DPARG';
  elsif v_gate ->> 'scope' <> 'policy' and p_key is null then
    raise exception 'dispatch_policy: %: key is null, expected a scope key: gate % has a bucket for each',
      p_verb, quote_literal(p_gate) using errcode = 'DPARG';
  end if;
  perform _check_key(p_key);
  if jsonb_typeof(v_gate -> 'values') = 'object' then
    v_limit := _constant_limits(jsonb_build_object('gates', jsonb_build_array(v_gate))) -> 0
      || jsonb_build_object('key', coalesce(p_key, ''));
  end if;
  loop
    select l.* into v_limiter from limiters l
    where l.policy_id = (p_policy).id and l.gate = p_gate and l.scope_key = coalesce(p_key, '') for no key update;
    exit when v_limiter.id is not null;
    if v_limit is null then
      raise exception 'dispatch_policy: %: key is %, expected one that a job has had: the numbers of gate % depend on the job. Add a job with this key first, or give the gate constant numbers',
        p_verb, quote_literal(left(coalesce(p_key, ''), 60)), quote_literal(p_gate) using errcode = 'DPARG';
    end if;
    -- a sweep may delete it before the next look, which locks it: so look again
    perform _make_limiters((p_policy).id, array[jsonb_populate_record(null::arrivals, jsonb_build_object(
        'id', 0, 'version', v_version, 'key', coalesce(p_key, ''), 'limits', jsonb_build_array(v_limit)))],
      coalesce(p_now, clock_timestamp()));
  end loop;
  -- no arrival tells a bucket that only this has used that its gate was declared with other numbers
  if v_limiter.arrival_id = 0 and _numbers_differ(v_limiter, v_limit) and v_limit is not null then
    perform _change_limiters(p_policy,
      jsonb_build_object(v_limiter.id, jsonb_build_object('arrival_id', 0, 'version', v_version, 'limit', v_limit)),
      '{}', coalesce(p_now, clock_timestamp()));
  end if;
  id := v_limiter.id;
  at := coalesce(p_now, clock_timestamp());
  limiter := (select n from _rooms_of(array[v_limiter.id], at, false) n);
  tokens := coalesce(limiter.tokens, limiter.shadow_tokens);
  if tokens is null then
    -- a limiter of the kind that the gate had before, which changes with the next job of its key
    raise exception 'dispatch_policy: %: gate % of policy % is no throttle for this key yet. Add a job with the key first',
      p_verb, quote_literal(p_gate), quote_literal((p_policy).name) using errcode = 'DPARG';
  end if;
end
$$;

-- A throttle that its caller has locked has these tokens now, and this is what its window remembers; null: it has none.
create or replace function _set_tokens(p_id bigint, p_tokens float8, p_spent spending[], p_at timestamptz) returns void
language plpgsql as $$
begin
  update limiters l
  set tokens = p_tokens, spent = coalesce(p_spent, l.spent), refilled_at = _throttle_filled_at(l.refilled_at, p_at)
  where l.id = p_id;
end
$$;
