-- What a staged job waits for, as json. Reasons come in the order in which a pass meets them: the job's own, a stop, a probe,
-- and the gates. If a partition is asked for, a stop comes before its next job's own reason.
create or replace function _explained_wait(
  p_job staged_jobs, p_partition partitions,
  p_of_partition boolean, p_now timestamptz
) returns jsonb language plpgsql stable as $$
declare
  v_policy policies;
  v_key text := (p_partition).key;
  v_gates jsonb := '[]';
  v_lack jsonb;
  v_reason text;
  v_next timestamptz;
  v_stop jsonb;
  v_ahead record := _work_ahead(p_job);
  v_it jsonb;
  v_real jsonb;   -- a shadow gate delays nothing
  v_head record;
begin
  select p.* into v_policy from policies p
  where p.id = coalesce((p_partition).policy_id, (
    select t.policy_id from policy_tasks t
    where t.task_identifier = (p_job).task_identifier));
  p_partition.policy_id := v_policy.id;   -- its pause counts also before the router has made the partition
  v_stop := _stop_of(p_partition);
  if (p_partition).id is not null then
    v_gates := _explained_gates(v_policy, p_partition, (p_job).cost, p_now);
  else
    v_key := (select a.key from arrivals a
      where a.partition_id = (p_job).partition_id limit 1);
  end if;
  -- of all gates without room the one that has it last: until then the job does not go. A partition waits for the first
  select g.value into v_lack from jsonb_array_elements(v_gates) with ordinality g (value, ord)
  where (g.value ->> 'lacks')::boolean order by (g.value ->> 'next_at')::timestamptz desc nulls first, g.ord limit 1;
  select h.id, h.until_at into v_head from _waiting_heads(array[(p_partition).id]) h
  where v_policy.job_order = 'strict' and (p_of_partition or h.id <> (p_job).id);
  v_reason := case
    when p_of_partition and v_stop is not null then v_stop ->> 'reason'
    when p_of_partition and v_head.id is not null then 'strict_order'
    when (p_job).partition_id is null then 'waiting_key'
    when (p_job).retry_at is not null then 'quarantined'
    when not (p_job).due and (p_job).run_at > p_now then 'not_due'
    when v_stop is not null then v_stop ->> 'reason'
    when (p_partition).probe_job_id is not null then 'probing'
    when v_head.id is not null then 'strict_order'
    when v_lack is not null then v_lack ->> 'reason'
    when (p_partition).denied_reason in ('tick_budget', 'batch') then (p_partition).denied_reason end;
  v_next := case v_reason
    when 'quarantined' then (p_job).retry_at
    when 'not_due' then (p_job).run_at
    when 'strict_order' then v_head.until_at
    when v_stop ->> 'reason' then (v_stop ->> 'until')::timestamptz
    when v_lack ->> 'reason' then (v_lack ->> 'next_at')::timestamptz end;
  v_it := jsonb_build_object(
    'state', case when (p_job).parked_job_id is null then 'staged' else 'parked' end,
    'id', (p_job).id::text, 'job_id', (p_job).parked_job_id::text, 'policy', v_policy.name, 'partition', v_key,
    'task_identifier', (p_job).task_identifier, 'run_at', (p_job).run_at, 'error', (p_job).error,
    'reason', v_reason,
    'gate', case when v_reason = v_lack ->> 'reason' then v_lack ->> 'gate' end,
    'next_at', case when isfinite(v_next) then v_next end,
    'stop', v_stop -> 'stop',
    'gates', v_gates,
    'place', _place_in_line(p_partition, case when (p_job).due then v_ahead.jobs end),
    'ticked_by', (
      select jsonb_build_object('pool_id', w.pool_id, 'host', w.host, 'pid', w.pid)
      from leases l
      join workers w on w.pool_id = l.holder
      where l.policy = v_policy.name and l.shard = coalesce((p_partition).shard, 'default') and l.expires_at > p_now
        and w.stale_at > p_now and not w.ended));
  v_real := (
    select coalesce(jsonb_agg(g.value order by g.ord), '[]') from jsonb_array_elements(v_gates) with ordinality g (value, ord)
    where not (g.value ->> 'shadow')::boolean);
  return v_it || _estimate(v_it || jsonb_build_object('gates', v_real), v_stop, v_ahead, v_policy, p_partition, p_job, p_now);
end
$$;
