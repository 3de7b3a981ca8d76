-- Job groups: what has ended of them, and their callbacks.

-- Counts jobs that have ended for good in their groups, and adds the callbacks of groups in which they were the last.
--
--   p_staged_ids, p_job_ids   of each job the id in staging and that in Graphile Worker; null: it has none
--   p_outcomes                how it ended, as in the history
--
-- Each job counts once in a group, because its row in group_jobs goes.
create or replace function _end_in_groups(p_staged_ids bigint[], p_job_ids bigint[], p_outcomes text[])
returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_group_ids bigint[];
  -- Those that went on past their policy, and were admitted again under another staged id. Somebody may end such a job as well,
  -- where it is staged, in a transaction that stays open. A sweep finds it if that one rolls back.
  v_others bigint[] := array(
    select m.staged_id from group_jobs m
    where m.job_id = any(p_job_ids) and m.staged_id <> all (p_staged_ids) for update skip locked);
begin
  with ended as materialized (
    select * from unnest(p_staged_ids, p_job_ids, p_outcomes) e (staged_id, job_id, outcome)
  ),
  by_staged_id as (
    delete from group_jobs m using ended e
    where m.staged_id = any(p_staged_ids) and e.staged_id = m.staged_id
    returning m.group_id, e.outcome
  ),
  by_job_id as (
    delete from group_jobs m using ended e
    where m.staged_id = any(v_others) and e.job_id = m.job_id
    returning m.group_id, e.outcome
  ),
  appended as (
    insert into group_ends (group_id, outcome, jobs)
    select d.group_id, d.outcome, count(*)
    from (select * from by_staged_id union all select * from by_job_id) d group by d.group_id, d.outcome
    returning group_id
  )
  select array_agg(distinct a.group_id) into v_group_ids from appended a;
  if v_group_ids is not null then
    perform _fold_groups(v_group_ids);
  end if;
end
$$;

-- Adds up what has ended of these job groups, and adds the callbacks of those in which all jobs have ended. It locks the groups'
-- rows, so of two transactions that end the last two jobs the second sees that both have ended.
--
-- The danger: an application may end a job in a transaction that stays open, and has the group's row locked. Releases and
-- passes would wait for it. The cure: this waits for a moment, and leaves such a group. What ended of it is appended by then,
-- and the next end of the group adds it up, or a sweep.
--
-- A callback that cannot be added stops no release: the group keeps the error, and a sweep tries again.
create or replace function _fold_groups(p_ids bigint[]) returns void language plpgsql volatile
set lock_timeout = '100ms' as $$
declare
  v_ids bigint[];
  v_group groups;
begin
  begin
    v_ids := array(
      select g.id from groups g where g.id = any(p_ids) order by g.id for no key update);
  exception when lock_not_available or deadlock_detected then
    v_ids := array(
      select g.id from groups g
      where g.id = any(p_ids) order by g.id for no key update skip locked);
  when serialization_failure then   -- the caller's snapshot is older than the group
    v_ids := '{}';
  end;
  -- a later statement than the lock: it must see what others have committed meanwhile
  with ended as (
    delete from group_ends e where e.group_id = any(v_ids) returning e.*
  ),
  tally as materialized (
    select e.group_id as id,
      coalesce(sum(e.jobs) filter (where e.outcome = 'succeeded'), 0) as succeeded,
      coalesce(sum(e.jobs) filter (where e.outcome = 'failed'), 0) as failed,
      coalesce(sum(e.jobs) filter (where e.outcome = 'removed'), 0) as removed,
      coalesce(sum(e.jobs) filter (where e.outcome = 'dropped'), 0) as dropped,
      coalesce(sum(e.jobs) filter (where e.outcome = 'replaced'), 0) as replaced,
      coalesce(sum(e.jobs) filter (where e.outcome = 'gone'), 0) as gone
    from ended e group by e.group_id
  )
  update groups g set succeeded = g.succeeded + t.succeeded, failed = g.failed + t.failed,
    removed = g.removed + t.removed, dropped = g.dropped + t.dropped, replaced = g.replaced + t.replaced,
    gone = g.gone + t.gone
  from tally t where g.id = t.id;
  for v_group in
    select g.* from groups g where g.id = any(v_ids) and g.jobs_left = 0 order by g.id
  loop
    begin
      perform _end_group(v_group);
    exception when others then
      update groups g set error = sqlerrm where g.id = v_group.id;
    end;
  end loop;
end
$$;

-- Adds the callback of a job group whose jobs have all ended, and deletes the group. The payload gets the counts as "_group",
-- as Graphile Worker's crontab adds "_cron". Raises if the callback cannot be added, because the backlog is full or its job
-- key is remembered (`uniqueFor`).
--
-- If its task has no policy any more, it goes to Graphile Worker, where nothing expires.
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

-- Counts in their groups those of these released jobs that have ended for good. Retries of failed jobs are staged by now. A job
-- that goes on is remembered by Graphile Worker's id, because it may go on without a slot.
create or replace function _end_released(
  p_gone in_flight_jobs[], p_jobs finished_job[]
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_staged_ids bigint[] := array(
    select m.staged_id from group_jobs m
    where m.staged_id = any(array(select g.staged_id from unnest(p_gone) g)));
  v_job_ids bigint[] := '{}';
  v_end record;
begin
  if exists (select from group_jobs m where m.job_id is not null) then   -- mostly none has
    v_job_ids := array(
      select m.job_id from group_jobs m
      where m.job_id = any(array(select g.job_id from unnest(p_gone) g)));
  end if;
  if v_staged_ids = '{}' and v_job_ids = '{}' then
    return;
  end if;
  with ended as materialized (
    select g.staged_id, g.job_id, f.ordinality, _outcome(
      f.ok, (select true from staged_jobs s where s.parked_job_id = g.job_id limit 1),
      j.attempts, j.max_attempts, j.locked_at is not null) as outcome
    from unnest(p_gone) g
    join unnest(p_jobs) f on f.job = g.job_id
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
    left join lateral (   -- one look at the index for each
      select x.attempts, x.max_attempts, x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x
      where x.id = g.job_id and _is_row_of(g.revision, g.staged_id, x.revision, x.flags) limit 1
    ) j on true
    where (g.staged_id in (select unnest(v_staged_ids))) is true or (g.job_id in (select unnest(v_job_ids))) is true
  ),
  released as materialized (   -- a job may have several ends
    select distinct on (e.job_id) e.* from ended e order by e.job_id, e.outcome is null, e.ordinality desc
  )
  select coalesce(array_agg(r.staged_id) filter (where r.outcome is not null), '{}') as staged_ids,
    array_agg(r.job_id) filter (where r.outcome is not null) as job_ids,
    array_agg(r.outcome) filter (where r.outcome is not null) as outcomes,
    array_agg(r.staged_id) filter (where r.outcome is null) as going_staged_ids,
    array_agg(r.job_id) filter (where r.outcome is null) as going_job_ids
  into v_end from released r;
  update group_jobs m set job_id = e.job_id
  from unnest(v_end.going_staged_ids, v_end.going_job_ids) e (staged_id, job_id)
  where m.staged_id = any(v_end.going_staged_ids) and m.staged_id = e.staged_id and m.job_id is distinct from e.job_id;
  if v_end.staged_ids <> '{}' then
    perform _end_in_groups(v_end.staged_ids, v_end.job_ids, v_end.outcomes);
  end if;
end
$$;

-- Counts in their groups the jobs that left staging or Graphile Worker's rows without running, in a pass. They lost their
-- place to a newer job of their key, or the row of a parked one is not there any more. Called before the new in-flight rows
-- are written.
create or replace function _admit_in_groups(p_admissions admission[])
returns void language plpgsql volatile as $$
declare
  v_staged_ids bigint[];
  v_outcomes text[];
begin
  select array_agg(e.staged_id), array_agg(e.outcome) into v_staged_ids, v_outcomes
  from (
    select f.staged_id, 'replaced' as outcome
    from unnest(p_admissions) a
    join in_flight_jobs f on f.job_id = a.job_id and f.staged_id <> a.staged_id
    where a.counted and f.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted))
    union all
    select a.staged_id, _outcome_of_staged(a.staged_id, a.job_id, a.revision)
    from unnest(p_admissions) a
    join group_jobs m on m.staged_id = a.staged_id
    where not a.admitted and m.staged_id = any(array(select b.staged_id from unnest(p_admissions) b where not b.admitted))
  ) e where e.outcome is not null;
  if v_staged_ids is not null then
    perform _end_in_groups(v_staged_ids, null, v_outcomes);
  end if;
end
$$;

-- How a staged job has ended that left staging without an admission. Null: it goes on.
--
--   p_job_id, p_revision   the row in which it was parked; null: it was not parked, and a newer job of its key is there
--
-- The danger: somebody retried a parked job by hand. Its row leaves staging, but the job runs or waits in Graphile Worker. Or
-- it has just ended, and its release is under way: its row is gone, and the release knows how it ended. It counted as
-- replaced or as gone, and the callback came before its end. The cure: a job goes on while it is in flight, or while
-- Graphile Worker will run it.
create or replace function _outcome_of_staged(p_staged_id bigint, p_job_id bigint, p_revision int)
returns text language plpgsql stable as $$
declare
  v_row record;
begin
  if p_job_id is null then
    return 'replaced';
  end if;
  select j.* into v_row from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job_id;
  if found and not _is_row_of(p_revision, p_staged_id, v_row.revision, v_row.flags) then
    return 'replaced';
  elsif exists (
    select from in_flight_jobs f
    where f.job_id = p_job_id and (f.revision = p_revision or f.staged_id = p_staged_id)
  ) then
    return null;
  end if;
  return _outcome(
    null, false, v_row.attempts, v_row.max_attempts, v_row.locked_at is not null);
end
$$;

-- A copy takes the place of its original in the groups: the original completes without running.
--
-- The danger: somebody retried a parked job by hand, so its original started while its row still waited in staging. The copy
-- did not take the place. The next pass found the original gone, and the callback came before the copy had run. The cure: a
-- job is known by its id in Graphile Worker, wherever else it waits. Its flag counts only if an admission wrote it: somebody
-- may have copied the flags of a job that goes on.
create or replace function _copy_in_groups(p_job_id bigint, p_copy_id bigint)
returns void language plpgsql volatile as $$
begin
  if not exists (select from groups) then
    return;
  end if;
  update group_jobs m set staged_id = p_copy_id, job_id = null
  where (m.job_id = p_job_id or m.staged_id = (
      select _staged_id_of(j.flags) from :GRAPHILE_WORKER_SCHEMA.jobs j
      where j.id = p_job_id and _is_ours(j.flags, j.created_at, j.key)))
    and not exists (   -- the copy replaced a job of the same group
      select from group_jobs x where x.staged_id = p_copy_id and x.group_id = m.group_id);
end
$$;

-- Keeps a job that a full worker pool requeues in its groups. Called after its slot was released.
--
-- The danger: the release has written the id of the original, which completes without running, and by that id the job would
-- soon be gone. The cure: the job is known by its staged id again, and if a copy is parked, by the copy's id.
create or replace function _requeue_in_groups(p_job_id bigint, p_staged_id bigint)
returns void language plpgsql volatile as $$
begin
  if not exists (select from groups) then
    return;
  end if;
  update group_jobs m set staged_id = p_staged_id, job_id = (
    select s.parked_job_id from staged_jobs s where s.id = p_staged_id)
  where m.job_id = p_job_id;
end
$$;

-- Keeps jobs that are unstaged in their groups, under Graphile Worker's ids. Those that left without a trace have ended, as
-- _outcome_of_staged has it. Called before the staged rows are deleted.
--
--   p_ids        all staged jobs that are unstaged
--   p_added      those of them that were new to Graphile Worker
--   p_job_ids    of each of these Graphile Worker's id
create or replace function _unstage_in_groups(p_ids bigint[], p_added bigint[], p_job_ids bigint[])
returns void language plpgsql volatile as $$
declare
  v_others record;
begin
  if not exists (select from groups) then
    return;
  end if;
  select array_agg(o.id) filter (where o.outcome is not null) as ended_ids,
    array_agg(o.outcome) filter (where o.outcome is not null) as outcomes,
    coalesce(array_agg(o.id) filter (where o.outcome is null and o.is_there), '{}') as kept_ids,
    coalesce(array_agg(o.parked_job_id) filter (where o.outcome is null and o.is_there), '{}') as kept_job_ids
  into v_others
  from (
    select s.id, s.parked_job_id,
      _outcome_of_staged(s.id, s.parked_job_id, s.parked_revision) as outcome,
      exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id) as is_there
    from staged_jobs s
    where s.id = any(array(
      select m.staged_id from group_jobs m where m.staged_id = any(p_ids)
      except select unnest(p_added)))
  ) o;
  update group_jobs m set staged_id = k.job_id, job_id = k.job_id
  from unnest(p_added || v_others.kept_ids, p_job_ids || v_others.kept_job_ids) k (staged_id, job_id)
  where m.staged_id = any(p_ids) and m.staged_id = k.staged_id;
  perform _end_in_groups(v_others.ended_ids, null, v_others.outcomes)
  where v_others.ended_ids is not null;
end
$$;

-- Ends in their groups the jobs whose end no release has seen: Graphile Worker ran them past their policy, or an operator
-- ended them there. Then it adds up what others have left, and tries callbacks again that could not be added.
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
  ) l where l.outcome is not null;
  closed := cardinality(v_ids);
  if closed > 0 then
    perform _end_in_groups(v_ids, null, v_outcomes);
  end if;
  if staged_id is null then
    perform _fold_groups(array(
      select g.id from groups g where g.jobs_left = 0
      union select e.group_id from group_ends e));
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
