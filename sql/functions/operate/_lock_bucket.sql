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
