-- Verbs: adopt jobs that wait in Graphile Worker.

-- Moves jobs of a policy's task that wait in Graphile Worker into staging, in the order of their ids: at most `count`, after
-- the id `after`. Jobs that run stay. A job that has failed before is parked.
--
-- `matched` counts the jobs that wait, `changed` those that were adopted. The others were locked or have no key. If
-- `matched` is `count`, there may be more: call it again after `last_id`, in a transaction of its own.
--
-- While it waits for its turn, the policy may be declared anew or switched off. By the row that was read before, jobs would
-- get a partition of the old definition, or none would stop them. So the row is read again once it has the turn.
create or replace function :DISPATCH_POLICY_SCHEMA.adopt(
  task text, count int default 2000, after bigint default 0, reason text default null, by text default null,
  dry_run boolean default false
) returns table (matched int, changed int, last_id bigint) language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_policy policies; v_jobs waiting_job[];
  v_turn_of int;   -- whose turn this session has
begin
  if adopt.count is null or adopt.count < 1 then
    raise exception 'dispatch_policy: adopt: count is %, expected a whole number from 1', coalesce(adopt.count::text, 'null')
      using errcode = 'DPARG';
  end if;
  loop
    select p.* into v_policy from policies p join policy_tasks t on t.policy_id = p.id where t.task_identifier = adopt.task;
    exit when adopt.dry_run or v_policy.id is not distinct from v_turn_of;
    perform _lock_turn(v_policy.id, 'adopt');
    v_turn_of := v_policy.id;
  end loop;
  if v_policy.id is null then
    raise exception 'dispatch_policy: adopt: task is %, expected a task with a policy; start a process that has the policy first',
      coalesce(quote_literal(adopt.task), 'null') using errcode = 'DPARG';
  elsif not v_policy.enabled then
    raise exception 'dispatch_policy: adopt: policy % is switched off, so ticks would admit the jobs past its gates; switch it on first, by switch_policy or the command enable',
      quote_literal(v_policy.name) using errcode = 'DPARG';
  end if;
  if adopt.dry_run then
    v_jobs := _waiting_jobs(v_policy, adopt.task, coalesce(adopt.after, 0), adopt.count);
    return query select cardinality(v_jobs), 0, v_jobs[cardinality(v_jobs)].id; return;
  end if;
  select a.matched, a.changed, a.last_id into matched, changed, last_id
  from _adopt(v_policy, adopt.task, coalesce(adopt.after, 0), adopt.count) a;
  if matched > 0 then
    perform _audit('adopt', v_policy.name, null, null, null,
      jsonb_build_object('task', adopt.task, 'after', adopt.after, 'last_id', last_id), adopt.reason, adopt.by, matched,
      changed);
  end if;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.adopt from public;

-- One step of adoption: moves at most p_limit jobs that wait in Graphile Worker for a task into staging. The caller has the
-- turn `adopt`. `changed` counts those that were adopted. The others were locked, changed meanwhile, or have no key.
--
-- A job that has failed before is parked, and a row that refers to it is staged, as a retry of this package's own. It stays
-- in Graphile Worker with its attempts and its last error.
--
-- Graphile Worker's functions wait for a row that another session has locked. So all together wait 50 ms at most, then each
-- half 5 ms, 40 times at most. Otherwise the other jobs would stay locked for long. A half is adopted as a whole or not at all.
--
-- Locks: staged rows in the order of their keys, as staging takes them, then Graphile Worker's rows.
create or replace function _adopt(
  p_policy policies, p_task text, p_after bigint, p_limit int, out matched int, out changed int, out last_id bigint
) language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_jobs waiting_job[] := _waiting_jobs(p_policy, p_task, p_after, p_limit);
  v_todo jsonb := jsonb_build_array(jsonb_build_array(1, cardinality(v_jobs)));
  v_resolves boolean := ((p_policy).definition ->> 'resolvesInSql')::boolean;
  v_from int; v_to int;
  v_part waiting_job[];
  v_older_ids bigint[];
  v_job record;
  v_moved int;
  v_without bigint[];   -- jobs of the part whose payload has no key
  v_unkeyed bigint[] := '{}';
  v_waits int := 0;
begin
  matched := cardinality(v_jobs);
  changed := 0;
  last_id := v_jobs[matched].id;
  while matched > 0 and jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      v_part := array(select w from unnest(v_jobs[v_from:v_to]) w where w.id <> all(v_unkeyed));
      -- A staged job that did not know Graphile Worker's when it was added is older than that one. But one that was added while
      -- an admission was not committed did not know that job either, and is newer.
      v_older_ids := array(
        select s.id from staged_jobs s
        join unnest(v_part) w on w.job_key = s.job_key
        where s.job_key = any(array(select u.job_key from unnest(v_part) u))
          and not w.was_admitted and (s.known_job_id, s.known_revision) is distinct from (w.id, w.revision)
        order by s.job_key for update of s);
      perform _drop_staged(v_older_ids);
      select m.moved, m.unkeyed into v_moved, v_without
      from _move_into_staging(p_policy, p_task, array(select w from unnest(v_part) w where w.attempts = 0)) m;
      if p_policy.cancels_after is not null then
        perform _cancel_older(p_policy, coalesce((
          select json_agg(json_build_object('jobKey', w.job_key)) from unnest(v_part) w where w.attempts = 0), '[]'), true);
      end if;
      for v_job in
        -- without a change, it locks the rows and returns them as they are
        select j.*, w.queue_name, (j.revision, j.attempts) <> (w.revision, w.attempts) as changed,
          case when v_resolves then _key_or_null((p_policy).definition, j.payload, p_task) end as partition_key
        from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(select u.id from unnest(v_part) u where u.attempts > 0)) j
        join unnest(v_part) w on w.id = j.id
        order by j.id
      loop
        if v_job.changed then
          raise lock_not_available;
        elsif v_resolves and v_job.partition_key is null then
          v_without := v_without || v_job.id;
        else
          perform _stage_parked(
            p_policy, nextval(pg_get_serial_sequence('staged_jobs', 'id')), v_job, p_task, v_job.queue_name,
            v_job.partition_key);
          v_moved := v_moved + 1;
        end if;
      end loop;
      if v_without <> '{}' then
        raise exception using errcode = 'DPOUT';
      -- A job may have run to its end since the page was read, and only then was one of its key staged. By the page the staged
      -- one looks older, and nothing of its key would be left. A smaller part without the job that is gone drops nothing.
      elsif v_older_ids <> '{}' and v_moved < cardinality(v_part) then
        raise lock_not_available;
      end if;
      changed := changed + v_moved;
    exception
      when sqlstate 'DPOUT' then   -- the others are tried again without these
        v_unkeyed := v_unkeyed || v_without;
        v_todo := v_todo || jsonb_build_array(jsonb_build_array(v_from, v_to));
      when lock_not_available or deadlock_detected then
        perform set_config('lock_timeout', '5ms', true);
        v_waits := v_waits + 1;
        if v_from < v_to then
          v_todo := v_todo || _halves(v_from, v_to);
        end if;
    end;
  end loop;
  if changed > 0 then
    perform _notify((p_policy).name);
  end if;
end
$$;

-- One step of adoption for a worker that catches many jobs: see _adopt. `busy`: another session adopts jobs of this policy,
-- so there was none. No row: the task has no policy, or its policy is switched off. It reads the policy again as `adopt`
-- does.
create or replace function _adopt_unless_busy(p_task text, p_after bigint, p_limit int)
returns table (busy boolean, matched int, changed int, last_id bigint) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_policy policies;
  v_turn_of int;   -- whose turn this session has
begin
  loop
    select p.* into v_policy from policies p join policy_tasks t on t.policy_id = p.id
    where t.task_identifier = p_task and p.enabled;
    if v_policy.id is null then
      return;
    end if;
    exit when v_policy.id = v_turn_of;
    busy := not _try_lock_turn(v_policy.id, 'adopt');
    exit when busy;
    v_turn_of := v_policy.id;
  end loop;
  if not busy then
    select a.matched, a.changed, a.last_id into matched, changed, last_id
    from _adopt(v_policy, p_task, p_after, p_limit) a;
    if changed > 0 then
      perform _audit('adopt', v_policy.name, null, null, null,
        jsonb_build_object('task', p_task, 'after', p_after, 'last_id', last_id), null, 'worker', matched, changed);
    end if;
  end if;
  return next;
end
$$;

-- Those of these ids whose jobs are staged under the id that they had in Graphile Worker. A verb looks into staging, then
-- into Graphile Worker. A job that is adopted in between was in neither when it was looked for, so the verb asks again.
create or replace function _adopted_ids(p_ids bigint[]) returns bigint[] language sql volatile as $$
  select array(
    select s.id from staged_jobs s where s.id = any(p_ids) and s.id < 1000000000000000 and s.parked_job_id is null);
$$;
