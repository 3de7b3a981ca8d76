-- What happened to jobs and partitions of policies that are watched: appended here, and read by features.

-- Whether somebody reads what happens to a policy's jobs: a history, a load, job groups, or keys that are
-- remembered.
create or replace function _is_watched(policy policies) returns boolean language plpgsql stable as $$
begin
  return (policy).watched or exists (select from groups);
end
$$;

-- Tells that a policy, or one of its partitions, is stopped until a time. The time -infinity ends the stop.
--
--   p_partition_id   null: the whole policy
create or replace function _tell_stop(
  p_policy_id int, p_partition_id uuid, p_reason text, p_until timestamptz, p_now timestamptz
) returns void language plpgsql volatile as $$
begin
  insert into events (policy_id, at, kind, partition_id, facts)
  select p.id, p_now, 'stopped', p_partition_id, jsonb_build_object('reason', p_reason, 'until', p_until)
  from policies p where p.id = p_policy_id and p.recorded;
end
$$;

-- Tells for what partitions wait, once a pass has decided about them. The gate's name follows the reason, as in
-- throttle_empty:account, because a policy may have several gates of a kind.
--
--   p_is_pass   a pass claims no partition that is stopped. So a stop of these is over, also if nobody has told of its end
create or replace function _tell_waits(p_policy_id int, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean)
returns void language plpgsql volatile as $$
begin
  insert into events (policy_id, at, kind, facts)
  select p_policy_id, p_now, 'waits', jsonb_build_object('isPass', p_is_pass, 'reasons', jsonb_object_agg(
    q.id, q.denied_reason || coalesce(case when l.kind <> 'ahead' then ':' || l.gate end, '')))
  from partitions q left join limiters l on l.id = q.blocked_on
  where q.id = any(p_partition_ids) having count(*) > 0;
end
$$;

-- What there is to tell of these staged jobs before they leave staging: an event each, whose kind and outcome the caller adds.
-- Jobs of policies that nobody watches are left out.
create or replace function _leaving(p_staged_ids bigint[], p_now timestamptz) returns events[] language plpgsql stable as $$
begin
  return array(
    select row(null, p.id, p_now, 'left', s.id, s.parked_job_id, s.partition_id, jsonb_build_object(
        'key', coalesce(q.key, a.key), 'task', s.task_identifier, 'jobKey', s.job_key, 'revision', s.parked_revision,
        -- a parked job has a new row in staging, whose times are those of its retry
        'addedAt', case when s.parked_job_id is null then s.created_at end,
        'dueAt', case when s.parked_job_id is null then greatest(s.created_at, s.run_at) end,
        'since', s.created_at, 'readyAt', greatest(s.created_at, s.run_at), 'trace', _trace_id_of(s.traceparent)))::events
    from staged_jobs s
    left join partitions q on q.id = s.partition_id
    left join policy_tasks t on q.id is null and t.task_identifier = s.task_identifier
    join policies p on p.id = coalesce(q.policy_id, t.policy_id)
    -- the router has not made its partition yet
    left join lateral (
      select x.key from arrivals x
      where q.id is null and x.policy = p.name and x.partition_id = s.partition_id limit 1) a on true
    where s.id = any(p_staged_ids) and _is_watched(p));
end
$$;

-- Tells which jobs a pass has admitted, and which have left staging without. They lost their place to a newer job of their key,
-- or the row of a parked one is not there any more. So did one whose row in Graphile Worker a newer job has got. Called
-- before the new in-flight rows are written.
--
--   p_leaving    by _leaving, before these left staging
--   p_recorded   also those that were admitted: nobody else asks for them
create or replace function _tell_admissions(
  p_leaving events[], p_admissions admission[], p_now timestamptz, p_recorded boolean)
returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _charge
begin
  insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
  select f.policy_id, p_now, 'left', f.staged_id, f.job_id, f.partition_id, '{"outcome": "replaced"}'
  from unnest(p_admissions) a
  join in_flight_jobs f on f.job_id = a.job_id and f.staged_id <> a.staged_id
  where a.counted and f.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted));
  insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
  select e.policy_id, e.at, case when a.admitted then 'admitted' else 'left' end, e.staged_id, a.job_id, e.partition_id,
    case when a.admitted then e.facts else e.facts || jsonb_build_object(
      'outcome', _outcome_of_staged(a.staged_id, a.job_id, a.revision)) end
  from unnest(p_leaving) e join unnest(p_admissions) a on a.staged_id = e.staged_id
  where p_recorded or not a.admitted order by e.staged_id;
end
$$;

-- Tells that staged jobs leave staging for good, without an admission. Called before they are deleted, by whoever has locked
-- them. If somebody has had a parked one retried by hand, it goes on, and its own end is told.
create or replace function _tell_removed(p_staged_ids bigint[], p_outcome text, p_error text default null)
returns void language plpgsql volatile as $$
declare
  v_policy_ids int[];
begin
  if p_staged_ids = '{}' or not exists (select from policies p where _is_watched(p)) then
    return;
  end if;
  with told as (
    insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
    select e.policy_id, e.at, e.kind, e.staged_id, e.job_id, e.partition_id, e.facts || jsonb_build_object(
      'error', p_error, 'as', p_outcome, 'outcome', case when e.job_id is null or _is_parked(
          e.staged_id, (e.facts ->> 'revision')::int, j.run_at, j.revision, j.last_error, j.flags) then p_outcome
        else _outcome_of_staged(e.staged_id, e.job_id, (e.facts ->> 'revision')::int) end)
    from unnest(_leaving(p_staged_ids, clock_timestamp())) e
    left join lateral (
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = e.job_id limit 1) j on true
    returning policy_id
  )
  select array_agg(distinct t.policy_id) into v_policy_ids from told t;
  perform _notify(p.name) from policies p where p.id = any(v_policy_ids);
end
$$;

-- How a staged job has ended that left staging without an admission. Null: it goes on.
--
--   p_job_id, p_revision   the row in which it was parked; null: it was not parked, and a newer job of its key is there
--
-- The danger: somebody retried a parked job by hand. Its row leaves staging, but the job runs or waits in Graphile Worker, or its
-- release is under way. The cure: a job goes on while it is in flight, or while Graphile Worker will run it.
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
  return _outcome(null, false, v_row.attempts, v_row.max_attempts, v_row.locked_at is not null);
end
$$;

-- Tells how jobs of a release have ended. Retries of failed jobs are staged by now. The outcome is null if the job goes on.
-- Returns whether there was anything to tell.
--
-- A job may have lost its slot while it ran, by `slotTimeout` or `releaseSlots`. If its release names it by its staged id, its
-- success is told, unless it waits for a retry, or another attempt or another job has a slot in its row: that one's end counts.
create or replace function _tell_ends(p_gone in_flight_jobs[], p_jobs finished_job[], p_now timestamptz)
returns boolean language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off
as $$   -- as _free_slots
declare
  v_policy_ids int[];
begin
  with ended as materialized (   -- a job may have several ends: the last one counts, and one for good before others
    select distinct on (g.job_id) g.*, f.ok, f.duration_ms, f.task, coalesce(f.attempt, j.attempts) as ended_attempt,
      coalesce(f.error, case when j.attempts >= j.max_attempts then _first_line(j.last_error) end) as error,
      j.task_identifier, o.outcome,
      least(coalesce(g.started_at, case when f.lag_ms is not null then g.admitted_at + _wait(f.lag_ms / 1000) end), p_now)
        as began_at
    from unnest(p_gone) g
    join unnest(p_jobs) f on f.job = g.job_id and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
    left join lateral (   -- one look at the index for each
      select x.task_identifier, x.attempts::int, x.max_attempts, x.last_error, x.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs x
      where x.id = g.job_id and _is_row_of(g.revision, g.staged_id, x.revision, x.flags) limit 1) j on true
    cross join lateral (
      select _outcome(f.ok, (select true from staged_jobs x where x.parked_job_id = g.job_id limit 1),
        j.attempts, j.max_attempts, j.locked_at is not null) as outcome) o
    where g.policy_id in (select p.id from policies p where _is_watched(p))
    order by g.job_id, o.outcome is null, f.ordinality desc
  ),
  told as (
    insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
    select e.policy_id, p_now, 'ended', e.staged_id, e.job_id, e.partition_id, jsonb_build_object(
      'seconds', _seconds(e.duration_ms), 'key', q.key, 'task', coalesce(e.task, e.task_identifier),
      'attempt', e.ended_attempt, 'ok', e.ok, 'error', e.error,
      'admittedAt', e.admitted_at, 'startedAt', e.began_at,
      'endedAt', case when e.duration_ms is not null then least(e.began_at + _wait(e.duration_ms / 1000), p_now) end,
      'outcome', e.outcome)
    from ended e
    left join partitions q on q.id = e.partition_id and q.id = any(array(select x.partition_id from unnest(p_gone) x))
    returning policy_id
  ),
  lost as (
    insert into events (policy_id, at, kind, staged_id)
    select k.policy_id, p_now, 'completed', f.staged_id
    from unnest(p_jobs) f
    cross join lateral (
      select x.policy_id from unique_keys x where x.staged_id = f.staged_id limit 1) k
    where f.ok and f.staged_id is not null and (f.job in (select g.job_id from unnest(p_gone) g)) is not true
      and (select true from in_flight_jobs i where i.job_id = f.job limit 1) is null
      and (select true from staged_jobs x where x.id = f.staged_id limit 1) is null
    returning policy_id
  )
  select array(select t.policy_id from told t union select l.policy_id from lost l) into v_policy_ids;
  perform _notify(p.name) from policies p where p.id = any(v_policy_ids);
  return v_policy_ids <> '{}';
end
$$;

-- Tells that a job goes on under another id: as a copy of it, staged again, or past its policy in Graphile Worker.
--
--   p_staged_id, p_job_id   by which it was known: either may be null
--   p_to, p_to_job          its id from now on, and that in Graphile Worker if it is there
create or replace function _tell_moved(p_policy_id int, p_staged_id bigint, p_job_id bigint, p_to bigint, p_to_job bigint)
returns void language plpgsql volatile as $$
begin
  insert into events (policy_id, kind, staged_id, job_id, facts)
  select p.id, 'moved', p_staged_id, p_job_id, jsonb_build_object('to', p_to, 'toJob', p_to_job)
  from policies p where p.id = p_policy_id and _is_watched(p);
end
$$;

-- Tells that jobs were dropped, for those who count them: of one partition, for one reason.
create or replace function _tell_dropped(p_policy text, p_partition_id uuid, p_key text, p_reason text, p_jobs bigint)
returns void language plpgsql volatile as $$
begin
  insert into events (policy_id, kind, partition_id, facts)
  select p.id, 'dropped', p_partition_id, jsonb_build_object('key', p_key, 'reason', p_reason, 'jobs', p_jobs)
  from policies p where p.name = p_policy;
end
$$;

-- Tells that jobs are unstaged: they go on under Graphile Worker's ids. Those that left without a trace have ended, as
-- _outcome_of_staged has it. Called before the staged rows are deleted.
--
--   p_ids        all staged jobs that are unstaged
--   p_added      those of groups that were new to Graphile Worker: of others it is not known which they are there
--   p_job_ids    of each of these Graphile Worker's id
create or replace function _tell_unstaged(p_ids bigint[], p_added bigint[], p_job_ids bigint[])
returns void language plpgsql volatile as $$
begin
  perform _tell_moved(coalesce(q.policy_id, t.policy_id), s.id, null, a.job_id, a.job_id)
  from unnest(p_added, p_job_ids) a (id, job_id)
  join staged_jobs s on s.id = a.id
  left join partitions q on q.id = s.partition_id   -- the router may not have made it yet
  left join policy_tasks t on q.id is null and t.task_identifier = s.task_identifier;
  insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
  select e.policy_id, e.at, case when o.outcome is null then 'moved' else 'left' end, e.staged_id, null, e.partition_id,
    case when o.outcome is null then jsonb_build_object('to', e.job_id, 'toJob', e.job_id)
      else e.facts || jsonb_build_object('outcome', o.outcome) end
  from unnest(_leaving(array(select unnest(p_ids) except select unnest(p_added)), clock_timestamp())) e
  cross join lateral (
    select _outcome_of_staged(e.staged_id, e.job_id, (e.facts ->> 'revision')::int) as outcome) o
  where case
    when e.job_id is null then exists (select from group_jobs m where m.staged_id = e.staged_id)   -- of others nobody knows
    else o.outcome is not null or exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = e.job_id) end;
end
$$;
