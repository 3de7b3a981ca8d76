-- Pauses or holds one partition. It waits for no limiter meanwhile, and gives up the slots reserved for it and its place in
-- the line of a shared throttle.
create or replace function :DISPATCH_POLICY_SCHEMA._stop_partition(
  p_policy text, p_partition text, p_paused_until timestamptz, p_held_until timestamptz, p_reason text, p_by text,
  out matched int, out changed int
) language plpgsql as $$
declare
  v_policy :DISPATCH_POLICY_SCHEMA._private_policies := :DISPATCH_POLICY_SCHEMA._policy(p_policy);
  v_id uuid := :DISPATCH_POLICY_SCHEMA._partition_id(p_policy, p_partition);
  v_limiter_ids bigint[];
begin
  perform :DISPATCH_POLICY_SCHEMA._check_key(p_partition);
  matched := 1; changed := 1;
  update :DISPATCH_POLICY_SCHEMA._private_partitions q set
    paused_until = coalesce(p_paused_until, q.paused_until), held_until = greatest(q.held_until, p_held_until),
    probing = q.probing or p_held_until is not null, denied_until = '-infinity', blocked_on = null, denied_reason = null,
    waiting_since = null,
    -- a hold, which may be a job's, does not replace the reason of an operator's pause
    stopped_by = case when p_held_until is not null and q.paused_until > clock_timestamp() then q.stopped_by
      else coalesce(p_by, session_user) end,
    stop_reason = case when p_held_until is not null and q.paused_until > clock_timestamp() then q.stop_reason
      else p_reason end
  where q.id = v_id returning q.limiter_ids into v_limiter_ids;
  if not found then
    insert into :DISPATCH_POLICY_SCHEMA._private_arrivals (policy, partition_id, key, pause)
    values (p_policy, v_id, p_partition, jsonb_build_object(
      'until', p_paused_until, 'held', p_held_until, 'by', coalesce(p_by, session_user), 'reason', p_reason));
  end if;
  insert into :DISPATCH_POLICY_SCHEMA._private_freed (policy_id, limiter_id)
  select v_policy.id, l.id from :DISPATCH_POLICY_SCHEMA._private_limiters l
  where l.id = any(v_limiter_ids) and (l.reserved_for = v_id or (l.by_tokens and l.breadth > 0));
  perform :DISPATCH_POLICY_SCHEMA._notify(p_policy);
end
$$;
