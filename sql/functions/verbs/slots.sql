-- Verbs: tick, admit past the gates, and release slots.

-- One routing and one admission pass from SQL. Gates alone decide: it does not keep to the ahead bound. Without a policy it
-- ticks every policy in one transaction. (A process that has the package uses one for each step of each policy.)
--
--   select * from dispatch_policy.tick('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.tick(
  policy text default null, shard text default null, now timestamptz default null
) returns table (claimed int, admitted int, denied jsonb, duration_ms float8, next_eligible_at timestamptz, dropped int)
language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_started timestamptz := clock_timestamp();
  v_policy text;
  v_pass record;
  v_read record;
begin
  perform _check_now('tick', tick.now);
  claimed := 0; admitted := 0; denied := '{}'; dropped := 0;
  for v_policy in
    select p.name from policies p
    where tick.policy is null or p.name = tick.policy order by p.id
  loop
    perform _route(v_policy, tick.now, 10000);
    select * into v_pass from _admit(v_policy, tick.shard, 50, tick.now, false);
    claimed := claimed + v_pass.claimed;
    admitted := admitted + v_pass.admitted;
    denied := _sum_by_key(denied, v_pass.denied);
    for v_n in 1..1000 loop
      v_read := _consume_events(v_policy, true);
      dropped := dropped + (select coalesce(sum((d ->> 'jobs')::int), 0) from jsonb_array_elements(v_read.drops) d);
      exit when not v_read.more;
    end loop;
    next_eligible_at := least(next_eligible_at, v_pass.next_eligible_at);
  end loop;
  if not found and tick.policy is not null then
    perform _unknown_policy(tick.policy);
  end if;
  duration_ms := extract(epoch from clock_timestamp() - v_started) * 1000;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.tick from public;

-- Admits due jobs of a policy or partition past its gates, pauses and holds. They are charged all the same: tokens stop at
-- zero, and jobs in flight may exceed max. Jobs that are not due yet are never admitted; `not_due` counts those, up to
-- 10,000. `dry_run` only counts.
create or replace function :DISPATCH_POLICY_SCHEMA.admit(
  policy text, count int, partition text default null, reason text default null, by text default null,
  now timestamptz default null, dry_run boolean default false
) returns table (matched int, changed int, not_due int) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '2s' as $$
#variable_conflict use_column
declare
  v_policy policies := _policy_with_jobs(admit.policy);
  v_now timestamptz := coalesce(admit.now, clock_timestamp());
  v_lanes uuid[];   -- of the partition that it is for; null: all of the policy's
  v_partition_ids uuid[]; v_limiter_ids bigint[]; v_limiters room_before[]; v_candidates candidate[];
begin
  perform _check_now('admit', admit.now);
  perform _check_count('admit', admit.count);
  -- It routes only if it must: no other router gets the turn before the caller's transaction ends.
  if exists (select from arrivals a where a.policy = admit.policy) then
    perform _route(admit.policy, admit.now, 10000);
  end if;
  if admit.partition is not null then
    v_lanes := _lanes(v_policy.name, admit.partition);
  end if;
  changed := 0;
  not_due := (
    select count(*) from (
      select from staged_jobs s
      join partitions q on q.id = s.partition_id
      where q.policy_id = v_policy.id and (v_lanes is null or q.id = any(v_lanes))
        and not s.due and coalesce(s.retry_at, s.run_at) > v_now
      limit 10000) s);
  if admit.dry_run then
    matched := (
      select count(*) from (
        select from staged_jobs s
        join partitions q on q.id = s.partition_id
        where q.policy_id = v_policy.id and (v_lanes is null or q.id = any(v_lanes))
          and (s.due or coalesce(s.retry_at, s.run_at) <= v_now)
        limit admit.count) s);
    return next; return;
  end if;
  v_partition_ids := array(
    select q.id from partitions q
    where q.policy_id = v_policy.id and (v_lanes is null or q.id = any(v_lanes)) and q.due_at <= v_now
      -- a partition whose jobs were removed is due until a tick looks at it
      and (exists (select from staged_jobs s where s.partition_id = q.id and s.due)
        or exists (
          select from staged_jobs s
          where s.partition_id = q.id and not s.due and coalesce(s.retry_at, s.run_at) <= v_now))
    order by q.due_at limit admit.count for no key update skip locked);
  perform _promote(v_partition_ids, v_now);
  begin
    v_limiter_ids := _limiters_of(v_partition_ids);
    perform _lock_limiters_soon(v_limiter_ids);
  exception when lock_not_available or deadlock_detected then
    -- it leaves partitions that use a locked limiter; the others go
    v_limiter_ids := _lock_available_limiters(_limiters_of(v_partition_ids));
    v_partition_ids := array(
      select q.id from partitions q where q.id = any(v_partition_ids) and not q.limiter_ids && v_limiter_ids);
    v_limiter_ids := _limiters_of(v_partition_ids);
  end;
  if admit.now is null then
    v_now := clock_timestamp();
  end if;
  v_partition_ids := _expire(admit.policy, v_partition_ids, v_now);
  v_limiters := array(select l from _rooms_of(v_limiter_ids, v_now, false) l);
  v_candidates := array(select c from _first_due(v_partition_ids, admit.count, admit.count) c);
  matched := (select count(*) from unnest(v_candidates) c where c.chosen);
  if v_partition_ids <> '{}' then
    changed := (select a.admitted from _admit_claimed(
      v_policy, _claimed(v_partition_ids, '{}'), v_limiters, v_candidates, v_now, true, null) a);
  end if;
  perform _audit('admit', admit.policy, admit.partition, null, null,
    jsonb_build_object('count', admit.count), admit.reason, admit.by, matched, changed);
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.admit from public;

-- Frees the slots of an in-flight job that has not ended: one that hangs, or that is known to be lost. The job is not
-- stopped. If it runs on, it does not count any more, and its end frees nothing. A job that has not started yet would start
-- past its limits. So it waits in staging again, and passes its gates once more.
--
-- `job_id` is Graphile Worker's id or the staged one. `matched` is 1 if it has slots. `changed` is then 0 if it keeps them,
-- because another transaction has the job, or a limit that it counts for, locked. Call it again.
create or replace function :DISPATCH_POLICY_SCHEMA.release_slots(
  job_id bigint, reason text default null, by text default null
) returns table (matched int, changed int) language sql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select * from _release_slots(release_slots.job_id, null, null, release_slots.reason, release_slots.by);
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.release_slots from public;

-- Frees the slots of one in-flight job, and records it in the audit. If admission and attempt are given, only if the slot still
-- belongs to that admission and to no later attempt. A job that starts in between is released as one that runs.
create or replace function _release_slots(
  p_job_id bigint, p_admission bigint, p_attempt int, p_reason text, p_by text
) returns table (matched int, changed int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_slot record;
begin
  if p_job_id is null then
    raise exception 'dispatch_policy: release_slots: job_id is null, expected the id of a job' using errcode = 'DPARG';
  end if;
  matched := 0; changed := 0;
  for try in 1 .. 3 loop
    select f.job_id, f.admission, coalesce(f.attempt, 0) as attempt, p.name as policy, q.key as partition,
      case when j.locked_at is null and j.attempts < j.max_attempts and j.run_at < 'infinity' and j.revision = f.revision
        then json_build_object(
          'revision', j.revision, 'task', j.task_identifier, 'queueName', j.queue_name, 'priority', j.priority,
          'maxAttempts', j.max_attempts,
          'after', extract(epoch from greatest(j.run_at, clock_timestamp()) - clock_timestamp())) end as again
    into v_slot
    from in_flight_jobs f
    join policies p on p.id = f.policy_id
    join partitions q on q.id = f.partition_id
    left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    where (f.job_id = p_job_id or f.staged_id = p_job_id)
      and coalesce(f.admission = p_admission and coalesce(f.attempt, 0) <= p_attempt, p_admission is null);
    exit when not found;
    matched := 1;
    perform _release(json_build_array(json_build_object(
      'job', v_slot.job_id, 'admission', v_slot.admission, 'attempt', v_slot.attempt, 'retry', v_slot.again)), null);
    changed := (not exists (
      select from in_flight_jobs f where f.job_id = v_slot.job_id and f.admission = v_slot.admission))::int;
    exit when changed = 1;
  end loop;
  perform _audit('release_slots', v_slot.policy, v_slot.partition, null, null,
    jsonb_build_object('job_id', p_job_id), p_reason, p_by, matched, changed);
  return next;
end
$$;
