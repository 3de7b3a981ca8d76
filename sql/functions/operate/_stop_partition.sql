-- Pauses or holds one partition. It waits for no limiter meanwhile, and gives up the slots reserved for it and its place in
-- the line of a shared throttle.
--
-- A partition that no job has had yet is not matched. The stop is stored, and waits for its first job.
create or replace function _stop_partition(
  p_policy text, p_partition text, p_paused_until timestamptz, p_held_until timestamptz, p_reason text, p_by text,
  out matched int, out changed int, out stored boolean
) language plpgsql as $$
declare
  v_policy policies := _policy(p_policy);
  v_id uuid := _partition_id(p_policy, p_partition);
  v_limiter_ids bigint[];
begin
  perform _check_key(p_partition);
  update partitions q set
    paused_until = coalesce(p_paused_until, q.paused_until), held_until = greatest(q.held_until, p_held_until),
    probing = q.probing or p_held_until is not null, denied_until = '-infinity', blocked_on = null, denied_reason = null,
    waiting_since = null,
    stopped_by = case
      when _tells_of_stop(q.held_until, q.paused_until, p_held_until, clock_timestamp())
      then coalesce(p_by, session_user) else q.stopped_by end,
    stop_reason = case
      when _tells_of_stop(q.held_until, q.paused_until, p_held_until, clock_timestamp())
      then p_reason else q.stop_reason end
  where q.id = v_id returning q.limiter_ids, (q.arrival_id > 0)::int into v_limiter_ids, matched;
  if not found then
    insert into arrivals (policy, partition_id, key, pause)
    values (p_policy, v_id, p_partition, jsonb_build_object(
      'until', p_paused_until, 'held', p_held_until, 'by', coalesce(p_by, session_user), 'reason', p_reason));
  end if;
  if matched is distinct from 1 then   -- a job may have come that the router has not seen
    matched := exists (
      select from arrivals a
      where a.policy = p_policy and a.partition_id = v_id and a.limits is not null)::int;
  end if;
  changed := matched;
  perform _record_stop(v_policy.id, v_id, case when p_held_until is null then 'paused' else 'held' end,
    coalesce(p_held_until, p_paused_until), clock_timestamp());
  stored := matched = 0;
  perform _leave_lines(v_policy.id, v_id, v_limiter_ids);
  perform _notify(p_policy);
end
$$;
