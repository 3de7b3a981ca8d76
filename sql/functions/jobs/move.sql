-- Staged jobs move to another partition or policy.

-- Moves these staged jobs of a partition, which the caller has locked, to that of this arrival, of the same policy. Routing looks
-- at the partition that they leave, whose next job may be another.
create or replace function _move_to_partition(
  p_state arrivals, p_from uuid, p_ids bigint[]
) returns void language plpgsql volatile as $$
declare
  v_from record;
begin
  select x.limits, _class_of(1 / x.weight) as class into v_from from (
    select q.limits, q.weight from partitions q where q.id = p_from and q.arrival_id > 0
    union all
    (select a.limits, coalesce(a.weight, 1) from arrivals a where a.partition_id = p_from and a.limits is not null
      order by a.id desc limit 1)) x
  limit 1;
  -- They keep their class, and are charged to the keys that they name, so they wait in a lane with those that do the same.
  if _lane_of(p_state.limits, p_state.weight) is not null or v_from.class > 0 then
    p_state.weight := _plain_weight(coalesce(p_state.weight, 1)) * power(2::float8, -140 * coalesce(v_from.class, 0));
    p_state.limits := (
      select jsonb_agg(case when g.value ? 'key' and o.value ? 'key' then o.value
          when o.value ? 'cost' then g.value || jsonb_build_object('cost', o.value -> 'cost') else g.value end
        order by (g.value ->> 'position')::int)
      from jsonb_array_elements(p_state.limits) g
      left join jsonb_array_elements(v_from.limits) o on o.value ->> 'gate' = g.value ->> 'gate' and o.value ?| '{key,cost}');
    p_state.partition_id := _partition_id(p_state.policy, p_state.key, _lane_of(p_state.limits, p_state.weight));
  end if;
  with moved as materialized (
    update staged_jobs s
    set partition_id = (p_state).partition_id, left_partition_id = s.partition_id
    where s.id = any(p_ids)
    returning s.id, s.priority, s.run_at, s.cost, s.due, s.left_partition_id
  ),
  left_behind as materialized (
    select _head_changed(array(select m.left_partition_id from moved m), -1)
  )
  insert into arrivals overriding user value
  select a.*
  from (
    select min(m.run_at) as due_at, min(m.cost) as min_cost, bool_or(not m.due) as later, count(*)::int as jobs from moved m
  ) w
  left join (
    select m.priority, m.run_at, m.id from moved m where m.due order by m.priority, m.run_at, m.id limit 1
  ) f on true
  cross join lateral _work_arrival(
    (p_state).policy, (p_state).partition_id, (p_state).key, (p_state).shard, (p_state).version, (p_state).context,
    (p_state).weight, (p_state).limits, w.due_at, w.min_cost, f.id is not null, f.priority, f.run_at, f.id,
    f.id is not null and w.later,   -- as _stage_batch: the arrival has only the due ones
    w.jobs) a
  -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
  where (select count(*) from left_behind) > 0;
end
$$;

-- Moves these staged jobs, which the caller has locked, to a policy, mostly another one. A process that has it works out
-- their partitions at its next tick, as for jobs whose key only JavaScript knows. Returns how many left the old one.
--
--   p_verb   who moves them, for the error
--   p_key    the key of their partition; null: it is worked out as well
--
-- The payload of a parked job is in Graphile Worker alone. If Graphile Worker has it no longer, it leaves without a trace.
create or replace function _move_to_policy(
  p_verb text, p_into policies, p_key text, p_ids bigint[]
) returns int language plpgsql volatile as $$
declare
  v_moved int;
begin
  perform _refuse_tasks(p_verb, p_into, array(
    select distinct s.task_identifier from staged_jobs s where s.id = any(p_ids)));
  delete from keyless_jobs k where k.staged_id = any(p_ids);
  with parked as materialized (   -- without a change, it locks the rows and returns them as they are
    select j.id, j.payload from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(
      select s.parked_job_id from staged_jobs s
      where s.id = any(p_ids) and s.parked_job_id is not null)) j
  ),
  consumed as (
    delete from staged_jobs s
    where s.id = any(p_ids) and s.parked_job_id is not null and s.parked_job_id not in (select k.id from parked k)
    returning s.partition_id
  ),
  moved as (
    update staged_jobs s set
      partition_id = null, due = s.run_at <= clock_timestamp() and s.waits_for is null,
      retry_at = case when s.waits_for is not null then s.retry_at end, failures = 0, error = null,
      payload = coalesce(k.payload, s.payload),
      -- a deadline means nothing under strict order, and neither that a job has begun means anything by deadlines
      sort_at = case when (p_into).job_order = 'deadline' then nullif(s.sort_at, '-infinity')
        when (p_into).job_order = 'strict' and s.sort_at = '-infinity' then s.sort_at end,
      droppable = _is_droppable((p_into).when_full, (p_into).max_pending_in_all)
    from staged_jobs x left join parked k on k.id = x.parked_job_id
    where x.id = any(p_ids) and s.id = x.id and (s.parked_job_id is null or k.id is not null)
    returning s.id, x.partition_id
  ),
  left_behind as materialized (
    select _head_changed(array(
      select c.partition_id from consumed c union all select m.partition_id from moved m), -1)
  ),
  keyless as (
    insert into keyless_jobs (staged_id, policy, partition_key)
    select m.id, (p_into).name, p_key from moved m
  )
  -- PostgreSQL skips a SELECT that nobody reads, and this one has an effect
  select count(*) into v_moved from moved where (select count(*) from left_behind) > 0;
  perform _count_pending((p_into).name, v_moved);
  perform _notify((p_into).name);
  return cardinality(p_ids);
end
$$;

-- Raises if one of these tasks, which waiting jobs have, is not of the policy that gets the jobs.
--
--   p_verb   who moves them, for the error
create or replace function _refuse_tasks(
  p_verb text, p_into policies, p_tasks text[]
) returns void language plpgsql stable as $$
declare
  v_foreign text := (
    select min(u.task) from unnest(p_tasks) u (task) where not exists (
      select from policy_tasks t
      where t.task_identifier = u.task and t.policy_id = (p_into).id));
begin
  if v_foreign is not null then
    raise exception 'dispatch_policy: %: a waiting job has the task %, expected a task of policy %: declare it there, or remove or unstage these jobs',
      p_verb, quote_literal(v_foreign), quote_literal((p_into).name) using errcode = 'DPARG';
  end if;
end
$$;
