-- The bucket that `take` and `sync` draw from, without a pass.

-- Locks the bucket that a verb, `take` or `sync`, names, and returns what it has then.
--
--   at       the time after the lock: whoever reads the clock before may wait, and would have the bucket gain twice
--   tokens   what it has, also if it is a shadow
create or replace function _bucket_now(
  p_verb text, p_policy policies, p_gate text, p_key text, p_now timestamptz,
  out id bigint, out at timestamptz, out limiter room_before, out tokens float8
) language plpgsql as $$
begin
  id := _lock_bucket(p_verb, p_policy, p_gate, p_key, p_now);
  at := coalesce(p_now, clock_timestamp());
  limiter := (select n from _rooms_of((p_policy).id, array[id], at, false) n);
  tokens := coalesce(limiter.tokens, limiter.shadow_tokens);
  if tokens is null then
    perform _raise_no_throttle(p_verb, p_policy, p_gate);
  end if;
end
$$;

-- Locks the bucket that a verb, `take` or `sync`, names, and returns its limiter's id. A bucket that no job has used yet is
-- made here, full, as the router makes it. Raises if only a job can tell the numbers of a new bucket.
--
-- No arrival tells such a bucket that its gate was declared with other numbers. So it gets them here.
create or replace function _lock_bucket(
  p_verb text, p_policy policies, p_gate text, p_key text, p_now timestamptz
) returns bigint language plpgsql as $$
declare
  v_limit jsonb := _bucket_limit(p_verb, p_policy, p_gate, p_key);
  v_version int := (p_policy).generation;
  v_limiter limiters;
begin
  loop
    select l.* into v_limiter from limiters l
    where l.policy_id = (p_policy).id and l.gate = p_gate and l.scope_key = coalesce(p_key, '') for no key update;
    exit when v_limiter.id is not null;
    if v_limit is null then
      raise exception 'dispatch_policy: %: key is %, expected one that a job has had: the numbers of gate % depend on the job. Add a job with this key first, or give the gate constant numbers',
        p_verb, quote_literal(left(coalesce(p_key, ''), 60)), quote_literal(p_gate) using errcode = 'DPARG';
    end if;
    -- a sweep may delete it before the next look, which locks it: so look again
    perform _make_limiters((p_policy).id, array[jsonb_populate_record(
      null::news, jsonb_build_object('newest', jsonb_build_object(
        'id', 0, 'version', v_version, 'key', coalesce(p_key, ''), 'limits', jsonb_build_array(v_limit))))],
      '{}', coalesce(p_now, clock_timestamp()));
  end loop;
  if v_limiter.arrival_id = 0 and _numbers_differ(v_limiter, v_limit) and v_limit is not null then
    perform _change_limiters(p_policy,
      jsonb_build_object(v_limiter.id, jsonb_build_object('arrival_id', 0, 'version', v_version, 'limit', v_limit)),
      '{}', coalesce(p_now, clock_timestamp()));
  end if;
  return v_limiter.id;
end
$$;

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

-- A throttle that its caller has locked has these tokens now, and this is what its window remembers; null: it has none.
create or replace function _set_tokens(p_id bigint, p_tokens float8, p_spent spending[], p_at timestamptz) returns void
language plpgsql as $$
begin
  update limiters l
  set tokens = p_tokens, spent = coalesce(p_spent, l.spent), refilled_at = _throttle_filled_at(l.refilled_at, p_at)
  where l.id = p_id;
end
$$;
