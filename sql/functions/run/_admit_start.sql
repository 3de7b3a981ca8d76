-- Whether a job that Graphile Worker has started gets a slot: that of the job it replaced, one past the gates, or one by them.
-- It waits for locked limiters for half a second at most, and not for a partition that a tick has locked.
--
-- By its gates it goes as one that goes in its add, but the ahead bound does not count: _admit_few does the rest. What that
-- does not know, it raises as DPOUT: then the job is staged, and the next pass decides.
--
-- A job that took an admitted one's place needs no further slot where that one has its own. It pays its tokens.
create or replace function _admit_start(
  p_policy policies, p_key text, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_batch json, p_unmanaged text, p_now timestamptz
) returns boolean language plpgsql
set lock_timeout = '500ms' as $$
declare
  v_now timestamptz := coalesce(p_now, clock_timestamp());
  v_partition partitions;
  v_limiters limiters[];
  v_before in_flight_jobs;
  v_line claimed;
  v_new staged_jobs;
begin
  v_new.cost := coalesce((p_batch #>> '{jobs,0,cost}')::float8, 1);
  perform _bring_up_to_date(p_policy, p_batch, v_now);
  if _inherit_slot(p_policy, p_key, p_job_id, p_staged_id, p_revision, v_now) then
    return true;
  elsif p_unmanaged = 'run' then
    perform _occupy_slot((p_policy).name, p_key, p_job_id, p_staged_id, p_revision, v_new.cost);
    return true;
  end if;
  select * into v_partition from partitions p
  where p.id = _partition_id((p_policy).name, p_key) for no key update skip locked;
  if v_partition.id is null then
    return false;
  end if;
  v_limiters := _lock_limiters(v_partition.limiter_ids);
  v_now := coalesce(p_now, clock_timestamp());
  if greatest((p_policy).paused_until, v_partition.stopped_until) > v_now
    or v_partition.probing or v_partition.head_id < (select h.id from _no_head() h)
    or _known_outcomes(p_policy, array[v_partition.id]) = '{}'
    -- in strict order also a job counts that is not routed yet, or that waits for its retry
    or ((p_policy).job_order = 'strict' and (
      exists (
        select from staged_jobs s
        where s.partition_id = v_partition.id and s.id <> p_staged_id and s.due)
      or exists (
        select from _waiting_heads(array[v_partition.id]) h where h.id <> p_staged_id)))
    or exists (select from partitions q where q.blocked_on = any(v_partition.limiter_ids)) then
    return false;
  end if;
  delete from in_flight_jobs f where f.job_id = p_job_id returning f.* into v_before;
  v_line := _as_claimed(v_partition, false);
  v_line.limiter_ids := array(
    select u.id from unnest(v_line.limiter_ids) with ordinality u (id, n) join unnest(v_limiters) l on l.id = u.id
    where l.by_tokens or l.id <> all (coalesce(v_before.limiter_ids, '{}')) order by u.n);
  v_new.id := p_staged_id;
  v_new.partition_id := v_partition.id;
  v_new.run_at := v_now;
  v_new.priority := 0;
  v_new.parked_job_id := p_job_id;
  perform _admit_few(p_policy, array[v_line], v_limiters, null, v_new, false, v_now);
  update in_flight_jobs f set
    revision = p_revision,   -- another one may be in its row by now
    limiter_ids = array(select unnest(f.limiter_ids) union select unnest(v_before.limiter_ids)),
    paid = case when v_before.job_id is not null then _paid_again(v_before, null, true) end
  where f.job_id = p_job_id and (v_before.job_id is not null or f.revision <> p_revision);
  insert into activity (policy_id, at, admitted, load)
  values ((p_policy).id, v_now, 1, case when (p_policy).load_kept_for is null then '{}' else array[
    row((p_policy).id, v_partition.id, v_now, 1, v_new.cost, 1, 0, 0)::load_change] end);
  return true;
end
$$;
