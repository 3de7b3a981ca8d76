-- Job groups: calls of jobs with a callback, what has ended of them, and the callback.

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

-- Makes a job group of jobs that were just added, and returns its id. If none of them is left to wait for, it adds the callback
-- at once, and returns null. If that cannot be added now, the group stays open.
--
-- A job that was not added counts as dropped, also if the row has the id of the job that kept it out (`uniqueFor`), or the call
-- has that job already.
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
  -- a callback that could not be added when its group has ended is refused now
  if (p_then).identifier is null then
    raise exception 'dispatch_policy: then_job: identifier is null, expected the task of the callback' using errcode = 'DPARG';
  end if;
  perform _refuse_ungoverned(array[(p_then).identifier] || array(select s.identifier from unnest(p_specs) s));
  perform _check_specs(array[p_then], 'replace', null, null);
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

-- Counts in their groups the jobs that have ended for good, and adds the callbacks of groups in which they were the last. A job
-- counts once, because its row in group_jobs goes. One that goes on is known by Graphile Worker's id as well, because it may go
-- on without a slot; one that goes on under another id is known by that.
--
-- Returns events that have to stay: of jobs whose groups another session has locked, and what comes after these.
create or replace function _events_to_groups(p_events events[]) returns bigint[] language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_group_ids bigint[] := array(
    select m.group_id from group_jobs m where m.staged_id = any(array(select e.staged_id from unnest(p_events) e))
    union select m.group_id from group_jobs m where m.job_id = any(array(select e.job_id from unnest(p_events) e)));
  v_locked bigint[];
  v_out_ids bigint[] := '{}';       -- jobs of other groups, by both of their ids
  v_out_job_ids bigint[] := '{}';
  v_event events;
  v_part events[] := '{}';
  v_left bigint[] := '{}';
begin
  if v_group_ids = '{}' then
    return '{}';
  end if;
  v_locked := array(select g.id from groups g where g.id = any(v_group_ids) order by g.id for no key update skip locked);
  if cardinality(v_locked) < cardinality(v_group_ids) then
    select array_agg(m.staged_id), coalesce(array_agg(m.job_id) filter (where m.job_id is not null), '{}')
    into v_out_ids, v_out_job_ids
    from group_jobs m where m.group_id = any(v_group_ids) and m.group_id <> all (v_locked);
  end if;
  foreach v_event in array p_events loop   -- what comes after a job got another id is known by that
    continue when v_event.kind not in ('left', 'ended', 'moved');
    if v_event.staged_id = any(v_out_ids) or v_event.job_id = any(v_out_job_ids) then
      v_left := v_left || v_event.id;
      if v_event.kind = 'moved' then
        v_out_ids := v_out_ids || (v_event.facts ->> 'to')::bigint;
        v_out_job_ids := v_out_job_ids || coalesce((v_event.facts ->> 'toJob')::bigint, 0);
      elsif v_event.kind = 'ended' then
        v_out_job_ids := v_out_job_ids || coalesce(v_event.job_id, 0);
      end if;
    elsif v_event.facts ->> 'outcome' is null and v_event.kind <> 'moved' then
      -- its next end may name it by this id alone
      update group_jobs m set job_id = v_event.job_id where m.staged_id = v_event.staged_id and v_event.kind = 'ended';
    elsif v_event.kind = 'moved' then
      perform _end_in_groups(v_part);
      v_part := '{}';
      update group_jobs m set staged_id = (v_event.facts ->> 'to')::bigint, job_id = (v_event.facts ->> 'toJob')::bigint
      where m.ctid = any(array(
          select x.ctid from group_jobs x where x.staged_id = v_event.staged_id
          union select x.ctid from group_jobs x where x.job_id = v_event.job_id))
        and not exists (   -- the other job is of the same group already
          select from group_jobs x
          where x.staged_id = (v_event.facts ->> 'to')::bigint and x.group_id = m.group_id and x.ctid <> m.ctid);
    else
      v_part := v_part || v_event;
    end if;
  end loop;
  perform _end_in_groups(v_part);
  perform _end_groups(v_locked);
  return v_left;
end
$$;

-- Counts in their groups the jobs that have ended for good by these events, between which none got another id. Their groups are
-- locked.
create or replace function _end_in_groups(p_events events[]) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_staged_ids bigint[] := array(select e.staged_id from unnest(p_events) e);
  -- of a job that left staging, the row in Graphile Worker may have another one by now
  v_job_ids bigint[] := array(select e.job_id from unnest(p_events) e where e.kind = 'ended' and e.job_id is not null);
begin
  with told as materialized (
    select distinct on (e.staged_id) e.staged_id, e.job_id, e.facts ->> 'outcome' as outcome
    from unnest(p_events) e order by e.staged_id, e.id
  ),
  by_staged_id as (
    delete from group_jobs m using told t
    where m.staged_id = any(v_staged_ids) and t.staged_id = m.staged_id
    returning m.group_id, t.outcome
  ),
  -- those that went on past their policy, and were admitted again under another staged id
  by_job_id as (
    delete from group_jobs m using told t
    where m.job_id = any(v_job_ids) and m.staged_id <> all (v_staged_ids) and t.job_id = m.job_id
    returning m.group_id, t.outcome
  ),
  tally as materialized (
    select d.group_id as id, count(*) filter (where d.outcome = 'succeeded') as succeeded,
      count(*) filter (where d.outcome = 'failed') as failed, count(*) filter (where d.outcome = 'removed') as removed,
      count(*) filter (where d.outcome = 'dropped') as dropped, count(*) filter (where d.outcome = 'replaced') as replaced,
      count(*) filter (where d.outcome = 'gone') as gone
    from (select * from by_staged_id union all select * from by_job_id) d group by d.group_id
  )
  update groups g set succeeded = g.succeeded + t.succeeded, failed = g.failed + t.failed, removed = g.removed + t.removed,
    dropped = g.dropped + t.dropped, replaced = g.replaced + t.replaced, gone = g.gone + t.gone
  from tally t where g.id = t.id;
end
$$;

-- Adds the callbacks of those of these groups that have no job left. The caller has locked them. If a callback cannot be added,
-- or somebody keeps its job key locked, its group keeps the error, and a sweep tries again.
create or replace function _end_groups(p_ids bigint[]) returns void language plpgsql volatile
set lock_timeout = '100ms' as $$
declare
  v_group groups;
begin
  for v_group in
    select g.* from groups g where g.id = any(p_ids) and g.jobs_left = 0 order by g.id
  loop
    begin
      perform _end_group(v_group);
    exception when others then
      if sqlstate = '55P03' then
        perform set_config('lock_timeout', '5ms', true);   -- all together do not wait for long
      end if;
      update groups g set error = sqlerrm where g.id = v_group.id;
    end;
  end loop;
end
$$;

-- Adds the callback of a job group whose jobs have all ended, and deletes the group. The payload gets the counts as "_group", as
-- Graphile Worker's crontab adds "_cron". Raises if the backlog is full or the job key is remembered (`uniqueFor`).
create or replace function _end_group(p_group groups)
returns void language plpgsql volatile as $$
declare
  v_job record;
  v_run_at timestamptz;
  v_added record;
begin
  delete from groups g where g.id = (p_group).id;
  select j.* into v_job from json_to_record((p_group).callback) j (
    identifier text, payload jsonb, "queueName" text, "runAt" timestamptz, wait float8, "maxAttempts" smallint, "jobKey" text,
    priority smallint, flags text[], "expiresAt" timestamptz, "expiresAfter" float8, traceparent text);
  v_run_at := coalesce(v_job."runAt", now() + make_interval(secs => v_job.wait));
  select s.id, s.policy, s.staged and s.job is not null as is_remembered into v_added from _stage_specs(
    array[row(v_job.identifier, (
        coalesce(nullif(v_job.payload, 'null'), '{}') || jsonb_build_object('_group', jsonb_build_object(
          'id', (p_group).id::text, 'total', (p_group).total, 'succeeded', (p_group).succeeded, 'failed', (p_group).failed,
          'removed', (p_group).removed, 'dropped', (p_group).dropped, 'replaced', (p_group).replaced,
          'gone', (p_group).gone)))::json,
      v_job."queueName", v_run_at, v_job."maxAttempts", v_job."jobKey", v_job.priority, v_job.flags
    ):::GRAPHILE_WORKER_SCHEMA.job_spec], 'replace', null, v_job.traceparent,
    case when exists (
      select from policy_tasks t where t.task_identifier = v_job.identifier)
      then array[coalesce(v_job."expiresAt", greatest(v_run_at, now()) + make_interval(secs => v_job."expiresAfter"))] end) s;
  if v_added.id is null then
    raise exception 'dispatch_policy: the backlog of policy % is full, and drops the callback of job group %',
      v_added.policy, (p_group).id using errcode = 'DPFUL';
  elsif v_added.is_remembered then
    raise exception 'dispatch_policy: policy % remembers the job key % of the callback of job group %',
      v_added.policy, v_job."jobKey", (p_group).id using errcode = 'DPFUL';
  end if;
end
$$;

-- Ends in their groups the jobs whose end no release has seen: Graphile Worker ran them past their policy, or an operator ended
-- them there. Then it adds up what others have left, and tries callbacks again that could not be added.
--
-- It reads a page of at most `p_max` jobs, by staged_id, behind the place that the caller gives.
--
--   closed      how many jobs it has ended
--   staged_id   the place behind which the next page begins; null: this was the last one
create or replace function _close_groups(
  p_after bigint default 0, p_max int default 10000, out closed int, out staged_id bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_page bigint[] := array(
    select m.staged_id from group_jobs m
    where m.staged_id > p_after order by m.staged_id limit p_max);
  v_ids bigint[];
  v_outcomes text[];
begin
  if cardinality(v_page) = p_max then
    staged_id := v_page[p_max];
  end if;
  select coalesce(array_agg(l.staged_id), '{}'), array_agg(l.outcome) into v_ids, v_outcomes
  from (
    select m.staged_id, _outcome(
      null, false, j.attempts, j.max_attempts, j.locked_at is not null) as outcome
    from group_jobs m
    left join lateral (   -- one look at the index for each
      select x.attempts, x.max_attempts, x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = m.job_id limit 1) j on true
    where m.staged_id = any(v_page)
      and not exists (
        select from staged_jobs s where s.id = m.staged_id or s.parked_job_id = m.job_id)
      and m.staged_id not in (select f.staged_id from in_flight_jobs f)
      and (m.job_id in (select f.job_id from in_flight_jobs f)) is not true
      -- events that nobody has read yet say how it ended, or by which id it goes on
      and not exists (select from events e where e.staged_id = m.staged_id)
      and (m.job_id in (select e.job_id from events e)) is not true
  ) l where l.outcome is not null;
  closed := cardinality(v_ids);
  if closed > 0 then
    perform _events_to_groups(array(
      select row(u.n, 0, now(), 'left', u.id, null, null, jsonb_build_object('outcome', u.outcome))::events
      from unnest(v_ids, v_outcomes) with ordinality u (id, outcome, n)));
  end if;
  if staged_id is null then
    perform _end_groups(array(select g.id from groups g where g.jobs_left = 0 order by g.id for no key update skip locked));
  end if;
end
$$;

-- Raises if job groups are open: without this schema their callbacks would never come. The message names up to five.
create or replace function _refuse_open_groups(p_verb text) returns void language plpgsql volatile as $$
declare
  v_groups text;
  v_count int;
begin
  select string_agg(g.name, ', ' order by g.id) filter (where g.n <= 5), count(*) into v_groups, v_count
  from (
    select x.id, row_number() over (order by x.id) as n,
      format('%s (%s jobs left, then %s)', x.id, x.jobs_left, x.callback ->> 'identifier') as name
    from groups x) g;
  if v_count > 0 then
    raise exception 'dispatch_policy: %: open job groups: %, expected none: %; let workers end their jobs, or remove the jobs and sweep, or force it: then their callbacks never come',
      p_verb, v_count, v_groups using errcode = 'DPUSE';
  end if;
end
$$;
