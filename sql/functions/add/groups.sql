-- A call of jobs with a callback.

-- Stages the jobs of a call as a job group, with the rights of the schema's owner. When all of them have ended for good, the
-- callback is added. It takes batches as _stage does.
--
--   p_then     the callback, see groups.callback; with "policy" if the calling process knows its policy
--   group_id   null: the call has no jobs, and the callback was added at once
create or replace function :DISPATCH_POLICY_SCHEMA.enqueue_group(
  p_batches json, p_mode text, p_payloads text[], p_then json
) returns table (
  n int, staged boolean, id bigint, task_identifier text, queue_name text, run_at timestamptz, max_attempts int, job_key text,
  priority int, flags text[], created_at timestamptz, policy text, partition text, shard text, job json, group_id bigint
) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_rows staging[];
  v_group_id bigint;
begin
  perform _refuse_ungoverned(array(
    select j.value ->> 'task' from json_array_elements(p_batches) b
    cross join lateral json_array_elements(b.value -> 'jobs') j where b.value ->> 'policy' is null)
    || case when p_then ->> 'policy' is null then p_then ->> 'identifier' end);
  v_rows := array(select s from _stage(p_batches, p_mode, p_payloads) s);
  v_group_id := _open_group(v_rows, p_then);
  return query
  select r.n, r.staged, r.id, r.task_identifier, r.queue_name, r.run_at, r.max_attempts, r.job_key, r.priority, r.flags,
    r.created_at, r.policy, r.partition, r.shard, r.job, v_group_id
  from unnest(v_rows) r;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.enqueue_group from public;

-- Raises if one of these tasks has no policy: of a job of such a task nobody sees the end.
create or replace function _refuse_ungoverned(p_tasks text[]) returns void language plpgsql as $$
declare
  v_task text := (
    select u.task from unnest(p_tasks) u (task)
    where u.task is not null and not exists (
      select from policy_tasks t where t.task_identifier = u.task)
    limit 1);
begin
  if v_task is not null then
    raise exception 'dispatch_policy: a job group has a job of %, expected tasks that have a policy: nobody sees the end of other jobs. Declare a policy for it, or add it in a call of its own',
      v_task using errcode = 'DPARG';
  end if;
end
$$;

-- Makes a job group of jobs that were just added, and returns its id. If none of them is left to wait for, it adds the
-- callback at once, and returns null. If that cannot be added now, the group stays open.
--
-- A job that was not added counts as dropped, also if the row has the id of the job that kept it out (`uniqueFor`). So does one
-- whose job the call has already.
create or replace function _open_group(
  p_rows staging[], p_then json
) returns bigint language plpgsql volatile as $$
declare
  v_group groups;
  v_added staging[] := array(
    select r from unnest(p_rows) r where r.id is not null and (not r.staged or r.job is null));
  v_jobs int := (select count(distinct r.id) from unnest(v_added) r);
begin
  insert into groups (callback, total, dropped)
  values (p_then, cardinality(p_rows), cardinality(p_rows) - v_jobs) returning * into v_group;
  if v_jobs = 0 then
    -- a callback that has no room, or whose key is remembered, must not fail the call: a sweep tries again
    begin
      perform _end_group(v_group);
      return null;
    exception when sqlstate 'DPFUL' then
      update groups g set error = sqlerrm where g.id = v_group.id;
      return v_group.id;
    end;
  end if;
  insert into group_jobs (staged_id, group_id, job_id)
  select r.id, v_group.id, case when bool_and(r.staged) then null else r.id end
  from unnest(v_added) r group by r.id;
  return v_group.id;
end
$$;

-- Stages jobs added from SQL as a job group, with the rights of the schema's owner. See enqueue_group.
create or replace function :DISPATCH_POLICY_SCHEMA.add_group(
  p_specs :GRAPHILE_WORKER_SCHEMA.job_spec[], p_mode text, p_partition_keys text[], p_expires_at timestamptz[],
  p_debounces json[], p_then :GRAPHILE_WORKER_SCHEMA.job_spec
) returns setof staging language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_rows staging[];
begin
  perform _check_callback(p_then);
  perform _refuse_ungoverned(array(select s.identifier from unnest(p_specs) s));
  v_rows := array(select s from :DISPATCH_POLICY_SCHEMA.add_governed(
    p_specs, p_mode, p_partition_keys, null, p_expires_at, p_debounces) s);
  perform _open_group(v_rows, json_build_object(
    'identifier', (p_then).identifier, 'payload', (p_then).payload, 'queueName', (p_then).queue_name,
    'runAt', (p_then).run_at, 'maxAttempts', (p_then).max_attempts, 'jobKey', (p_then).job_key,
    'priority', (p_then).priority, 'flags', (p_then).flags,
    'traceparent', _traceparent(current_setting('dispatch_policy.traceparent', true))));
  return query select r.* from unnest(v_rows) r;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.add_group from public;

-- Raises for a callback from SQL that could not be added when its group has ended: that has to be seen now.
create or replace function _check_callback(p_then :GRAPHILE_WORKER_SCHEMA.job_spec) returns void
language plpgsql as $$
begin
  if (p_then).identifier is null then
    raise exception 'dispatch_policy: then_job: identifier is null, expected the task of the callback' using errcode = 'DPARG';
  end if;
  perform _refuse_ungoverned(array[(p_then).identifier]);
  perform _check_specs(array[p_then]);
  if exists (select from unnest((p_then).flags) f where _is_own_flag(f)) then
    raise exception 'dispatch_policy: then_job: flags that begin with "dispatch_policy:" are reserved' using errcode = 'DPARG';
  end if;
  if coalesce(json_typeof((p_then).payload), 'null') not in ('object', 'null') then
    raise exception 'dispatch_policy: then_job: the payload is of type %, expected an object: the counts are added to it as "_group"',
      json_typeof((p_then).payload) using errcode = 'DPARG';
  end if;
  perform _path_key(
    p.definition, (coalesce(nullif((p_then).payload::jsonb, 'null'), '{}') || '{"_group": {"id": "0"}}')::json,
    (p_then).identifier)
  from policy_tasks t
  join policies p on p.id = t.policy_id
  where t.task_identifier = (p_then).identifier;
end
$$;
