-- In-flight rows while a job runs, and when its worker is lost.

-- Records the start of an attempt that a worker does not believe by its row alone: which attempt it is, and where it runs.
-- The job keeps its slot. A job that replaced another one in its row, under its key, does not have that one's slot: the
-- revision tells.
--
-- An earlier attempt may end late, because its pool counted as dead. Or somebody took attempts off the job, so that two
-- attempts have one number. That end must free nothing. So from here on the slot belongs to a new admission, and the
-- late end names the one before.
--
-- The question may come late, when the pool counts as dead and others have its jobs and their slots. A sweep unlocks such
-- jobs and changes their slots in one transaction. So the slot is locked here before the job is looked at.
--
-- Graphile Worker gives a lock up after four hours, though the pool that has it lives and runs the job. Then two attempts
-- would run at once. So if the attempt before has not ended, as far as is known, its pool is asked: it answers by
-- _still_runs. Until then this start waits.
--
--   p_locked_at   see _keeps_job
--   p_ticket      the admission that the job's flag names. Null: this start asks nobody
--   p_unanswered  how often this start has asked since somebody answered
--   doubt         'asked' or 'answered': it must not run yet, and asks again later. Null: it runs
--   admitted   when the job was admitted, in microseconds since 1970
--   resumed    the attempt before was cut short
--   cancelled_by, cancel_reason   an operator has cancelled the job: it must not run. Null: nobody has
--   no row     the job has no slot, or is not locked for this attempt any more
create or replace function _start_attempt(
  p_job_id bigint, p_revision int, p_attempt int, p_pool_id text, p_locked_at timestamptz, p_ticket bigint default null,
  p_unanswered int default 0
) returns table (
  partition text, staged_id bigint, admission bigint, admitted bigint, resumed boolean, cancelled_by text, cancel_reason text,
  doubt text
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_before in_flight_jobs;
begin
  select f.* into v_before from in_flight_jobs f
  where f.job_id = p_job_id and f.revision = p_revision for update;
  if v_before.job_id is null or not _keeps_job(p_job_id, p_attempt, p_pool_id, p_locked_at) then
    return;
  end if;
  if p_attempt > 1 and p_ticket is not null then
    doubt := case
      when v_before.pool_id is not null and v_before.attempt < p_attempt and exists (
        select from workers w
        where w.pool_id = v_before.pool_id and w.stale_at > clock_timestamp() and not w.ended) then 'answered'
      when p_unanswered between 1 and 4 or (v_before.attempt is null and v_before.admission = p_ticket) then 'asked' end;
    if doubt is not null then
      if doubt = 'answered' or p_unanswered = 0 then
        update in_flight_jobs f
        set attempt = coalesce(f.attempt, p_attempt - 1), pool_id = null where f.job_id = p_job_id;
        perform pg_notify('dispatch_policy', json_build_object(
          'schema', :'DISPATCH_POLICY_SCHEMA', 'runs', p_job_id)::text);
      end if;
      return next;
      return;
    end if;
  end if;
  return query
  update in_flight_jobs f set
    admission = _admission_now(), attempt = p_attempt, pool_id = p_pool_id, started_at = clock_timestamp(),
    lent_until = case when f.pool_id = p_pool_id then f.lent_until end
  from partitions q
  where f.job_id = p_job_id and q.id = f.partition_id
  returning q.key, f.staged_id, f.admission, (extract(epoch from v_before.admitted_at) * 1000000)::bigint,
    v_before.attempt is not null and v_before.pool_id is null, f.cancelled_by, f.cancel_reason, null;
end
$$;

-- Whether a job is still locked for this attempt, by this pool, or lent to it. Each fetch writes locked_at, and nothing else does.
-- The number of attempts tells less. If somebody adds the job's key again or removes it, Graphile Worker sets that number to the
-- last one, and the job runs on.
--
--   p_locked_at   as JavaScript has read it, in milliseconds. Null: it could not read it
create or replace function _keeps_job(
  p_job_id bigint, p_attempt int, p_pool_id text, p_locked_at timestamptz
) returns boolean language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = p_job_id and j.locked_by is not distinct from p_pool_id
      and case when p_locked_at is null then j.attempts = p_attempt
        else abs(extract(epoch from j.locked_at - p_locked_at)) < 0.001 end)
    or exists (
      select from in_flight_jobs f
      where f.job_id = p_job_id and f.pool_id = p_pool_id and f.lent_until > clock_timestamp()
        and coalesce(f.attempt, p_attempt) = p_attempt);
$$;

-- Occupies slots for a job that starts past its gates: past the limits, and without tokens. So a retry that bypasses the
-- gates counts in flight while it runs. Called before the task runs; the job's release frees the slots. A job that
-- replaced an admitted one, in its row and under its key, occupies that one's slots as well.
--
--   p_admission, p_attempt, p_pool_id   of a job that runs already
create or replace function _occupy_slot(
  p_partition_id uuid, p_job_id bigint, p_staged_id bigint, p_revision int, p_cost float8,
  p_admission bigint default null, p_attempt int default null, p_pool_id text default null
) returns void language plpgsql as $$
declare
  v_locked limiters[] := _lock_limiters(_limiters_of(array[p_partition_id]));
  v_occupied_ids bigint[];
  v_new_ids bigint[];
begin
  select f.limiter_ids into v_occupied_ids from in_flight_jobs f
  where f.job_id = p_job_id for update;
  v_new_ids := _slots_beyond(array(
    select l.id from partitions p cross join unnest(p.limiter_ids) u (id) join unnest(v_locked) l on l.id = u.id
    where p.id = p_partition_id and not l.by_tokens), v_occupied_ids);
  insert into in_flight_jobs as f (
    job_id, staged_id, admission, revision, policy_id, partition_id, limiter_ids, cost, paid, admitted_at, attempt, pool_id,
    started_at)
  select p_job_id, p_staged_id, coalesce(p_admission, _admission_now()), p_revision, p.policy_id, p.id,
    coalesce(v_occupied_ids, '{}') || v_new_ids, p_cost, '{"cost": 0}', clock_timestamp(),
    p_attempt, p_pool_id, case when p_pool_id is not null then clock_timestamp() end
  from partitions p where p.id = p_partition_id
  on conflict (job_id) do update set
    staged_id = excluded.staged_id, admission = excluded.admission, revision = excluded.revision, attempt = excluded.attempt,
    pool_id = excluded.pool_id, started_at = excluded.started_at,
    missing_since = null, cancelled_at = null, cancelled_by = null, cancel_reason = null, lent_until = null,
    policy_id = excluded.policy_id, partition_id = excluded.partition_id,
    limiter_ids = excluded.limiter_ids, cost = excluded.cost, paid = excluded.paid, admitted_at = excluded.admitted_at;
  perform _count_slots(array_agg(n.id), array_agg(n.slots))
  from (select u.id, count(*)::int as slots from unnest(v_new_ids) u (id) group by u.id) n;
end
$$;

-- Of the slots that a job wants those that it does not have: an id in both is one slot each time.
create or replace function _slots_beyond(p_wanted bigint[], p_had bigint[]) returns bigint[] language sql immutable as $$
  select array(
    select w.id from (select u.id, row_number() over (partition by u.id order by u.n) as nth, u.n
      from unnest(p_wanted) with ordinality u (id, n)) w
    where w.nth > coalesce(_takes(p_had, w.id), 0) order by w.n);
$$;

-- Gives the slot of an admitted job to the job that replaced it, in its row and under its key. The slot must count for all
-- limiters of the new job. The new job then is an admission of its own, so the end of the old one frees nothing.
--
-- The danger: the old job may have run and failed, and nothing tells, because Graphile Worker has overwritten its row. The
-- new one would run for its tokens, and in spite of the hold that its failure has set. The cure: it does not inherit where
-- tokens are paid or where its partition is stopped. There _admit_few decides.
create or replace function _inherit_slot(
  p_policy policies, p_partition_id uuid, p_job_id bigint, p_staged_id bigint, p_revision int,
  p_now timestamptz
) returns boolean language plpgsql as $$
begin
  update in_flight_jobs f set
    staged_id = p_staged_id, admission = _admission_now(), revision = p_revision,
    attempt = null, pool_id = null, started_at = null, missing_since = null, admitted_at = clock_timestamp(),
    cancelled_at = null, cancelled_by = null, cancel_reason = null, lent_until = null
  from partitions p
  where f.job_id = p_job_id and p.id = f.partition_id
    and p.id = p_partition_id
    and _slots_beyond(array(
      select l.id from unnest(p.limiter_ids) u (id) join limiters l on l.id = u.id
      where not l.by_tokens and (l.numbers).shadow is not true), f.limiter_ids) = '{}'
    and not exists (
      select from limiters l where l.id = any(p.limiter_ids) and l.by_tokens
        and (l.numbers).shadow is not true)
    and not p.probing and (greatest((p_policy).paused_until, p.stopped_until) > p_now) is not true;
  return found;
end
$$;

-- A pool answers that it still runs a job, see _start_attempt.
create or replace function _still_runs(
  p_job_id bigint, p_admission bigint, p_attempt int, p_pool_id text
) returns void language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  update in_flight_jobs f set attempt = p_attempt, pool_id = p_pool_id
  where f.job_id = p_job_id and f.admission = p_admission and f.pool_id is null;
end
$$;

-- Gives the slots of these jobs, that a pool says it runs, to the attempts that it names, and leaves the others that it had to
-- sweeps. See _say_runs. A row of another revision is the next job's of the key.
create or replace function _keep_runs(p_pool_id text, p_runs json, p_ids bigint[], p_gone bigint[]) returns void
language plpgsql as $$
begin
  perform from in_flight_jobs f
  where f.job_id = any(p_ids) or f.pool_id = p_pool_id order by f.job_id for update;
  update in_flight_jobs f
  set admission = r.admission, attempt = r.attempt, pool_id = p_pool_id, missing_since = null,
    started_at = coalesce(f.started_at, clock_timestamp())
  from json_to_recordset(p_runs) as r (job bigint, revision int, attempt int, admission bigint, "stagedId" bigint)
  where r.job = any(p_ids) and f.job_id = r.job and f.revision = r.revision and coalesce(f.attempt, 0) <= r.attempt
    and f.staged_id = coalesce(r."stagedId", f.staged_id);
  update in_flight_jobs f set pool_id = null
  where f.pool_id = p_pool_id and f.job_id <> all (p_ids)
    -- _give_up_locks sees to those that are lent
    and (f.lent_until is null or not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = f.job_id))
    -- one may have started since the pool looked
    and (coalesce(f.started_at, '-infinity') < clock_timestamp() - interval '10 seconds' or f.job_id = any(p_gone));
end
$$;

-- Lends the slots of jobs that run without being locked, see _lend, and returns the jobs: those that were lent before, or have no
-- slot.
create or replace function _lend_slots(
  p_pool_id text, p_job_ids bigint[], p_until timestamptz, p_begins boolean
) returns bigint[] language plpgsql as $$
declare
  v_slots bigint[] := array(
    select f.job_id from in_flight_jobs f where f.job_id = any(p_job_ids) order by f.job_id for update);
begin
  update in_flight_jobs f set lent_until = p_until, pool_id = p_pool_id
  where f.job_id = any(v_slots) and (p_begins or f.lent_until is not null);
  return array(
    select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j
    where j.id = any(p_job_ids) and j.locked_at is null and j.run_at < 'infinity'
      and (j.id <> all (v_slots) or exists (select from in_flight_jobs f where f.job_id = j.id and f.lent_until = p_until)));
end
$$;

-- The attempts of these jobs were cut short, whatever ran them: the next ones have the slots.
create or replace function _lose_runs(p_job_ids bigint[], p_attempts int[]) returns void language plpgsql as $$
begin
  perform from in_flight_jobs f where f.job_id = any(p_job_ids) order by f.job_id for update;
  update in_flight_jobs f set attempt = u.attempt + 1, pool_id = null, started_at = null
  from unnest(p_job_ids, p_attempts) u (job_id, attempt) where f.job_id = u.job_id;
end
$$;

-- Leaves out the ends of jobs whose retry is not theirs to decide. A flush may come so late that Graphile Worker has
-- retried the job by itself. Then the slot and the next back-off belong to the new attempt. (A job whose attempts are at
-- their maximum is not retried.) If the row has fewer attempts, it has the next job of the key.
--
-- The worker pool of those left out does not run them any more. Their in-flight rows lose the pool, so that a sweep finds
-- them if the job leaves Graphile Worker.
create or replace function _without_others_ends(
  p_jobs finished_job[]
) returns finished_job[] language plpgsql as $$
declare
  v_own finished_job[] := array(
    select j from unnest(p_jobs) j
    left join :GRAPHILE_WORKER_SCHEMA.jobs g on g.id = j.job
    left join in_flight_jobs f on f.job_id = j.job
    where (j.retry).attempt is null or (
      _is_end_of(j.admission, (j.retry).attempt, f.admission, f.attempt)
      and not coalesce((j.retry).attempt < g.attempts and g.attempts < g.max_attempts, false)
      -- an attempt that does not count is taken off with the first flush, and the slot may go with the next
      and not coalesce((j.retry).attempt > g.attempts + case when (j.retry).refund then 1 else 0 end, false))
    order by j.job);
begin
  update in_flight_jobs f set pool_id = null
  where f.job_id = any(array(
    select x.job_id from unnest(p_jobs) j
    join in_flight_jobs x on x.job_id = j.job and x.admission = j.admission
    where x.pool_id is not null and j.job not in (select k.job from unnest(v_own) k) for update of x skip locked));
  return v_own;
end
$$;

-- Marks up to so many of the jobs in flight that a cancel is for, and notifies the worker pools, which tell those that run. A
-- release ends a marked job for good if it has failed, and a start that asks refuses to run it.
--
-- Jobs that have failed are marked as well, because the release of a failure may be under way, and stage the job again. Jobs
-- that the caller has ended (`p_ended`) get another mark as well: by it the next sweep frees their slots. All rows are
-- locked at once, in the order in which releases and passes lock them.
--
--   told      they run, and were not marked before
--   known     they run, and a cancel before has marked them
--   missed    a job was released, or started anew, before its row was locked: the caller looks again
--   is_full   there may be more than `p_max`
create or replace function _mark_cancelled(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_ended bigint[], p_max int,
  out told bigint[], out known bigint[], out missed boolean, out is_full boolean
) language plpgsql volatile as $$
declare
  v_page bigint[] := array(
    select c.job_id from _cancellable(p_ids, p_policy, p_partition) c
    where not c.cancelled and c.job_id <> all (p_ended) order by c.job_id limit p_max);
  v_locked bigint[];
  v_new bigint[];
begin
  is_full := cardinality(v_page) = p_max;
  v_page := v_page || p_ended;
  v_locked := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(v_page) order by f.job_id for update);
  select coalesce(array_agg(c.job_id) filter (where c.job_id = any(v_locked)), '{}'),
    coalesce(array_agg(c.job_id) filter (where c.job_id = any(v_locked) and not c.cancelled and c.runs), '{}'),
    coalesce(array_agg(c.job_id) filter (where c.cancelled and c.runs), '{}')
  into v_new, told, known
  from _cancellable(p_ids, p_policy, p_partition) c;
  missed := cardinality(v_new) < cardinality(v_page);
  update in_flight_jobs f set
    cancelled_at = coalesce(f.cancelled_at, clock_timestamp()),
    cancelled_by = case when f.cancelled_at is null then p_by else f.cancelled_by end,
    cancel_reason = case when f.cancelled_at is null then p_reason else f.cancel_reason end, min_run = null,
    missing_since = case when f.job_id = any(p_ended) then '-infinity' else f.missing_since end
  where f.job_id = any(v_new);
  perform pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p.name, 'cancelled', true)::text)
  from policies p
  where p.id in (
    select f.policy_id from in_flight_jobs f where f.job_id = any(told || known));
end
$$;

-- The jobs in flight that a cancel is for, by id or by policy and partition, if Graphile Worker's row still has them.
-- PostgreSQL inlines this query.
--
--   runs    a worker has fetched it
--   ended   it has failed for good
--   cancelled   a cancel has marked it, and its run need not go on for a while
create or replace function _cancellable(p_ids bigint[], p_policy text, p_partition text)
returns table (job_id bigint, revision int, runs boolean, ended boolean, cancelled boolean) language sql stable as $$
  select f.job_id, j.revision, j.locked_at is not null, j.locked_at is null and j.attempts >= j.max_attempts,
    f.cancelled_at is not null and f.min_run is null
  from in_flight_jobs f
  cross join lateral (   -- one look at the index for each job
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j
  where (p_ids is null or f.job_id = any(p_ids) or f.staged_id = any(p_ids))
    and (p_policy is null or f.policy_id = (
      select p.id from policies p where p.name = p_policy))
    and (p_partition is null or f.partition_id = any(array(select unnest(_lanes(p_policy, p_partition)))))
    and _is_row_of(f.revision, f.staged_id, j.revision, j.flags);
$$;

-- Marks the in-flight rows of these jobs, so that the next sweep frees their slots. To free them here would lock
-- limiters until the application's transaction commits, and stop all who use them. The rows are locked in the order in
-- which releases lock them, because in another order the two deadlock.
create or replace function _leave_to_sweep(p_job_ids bigint[]) returns void
language sql volatile as $$
  update in_flight_jobs f set missing_since = '-infinity'
  where f.job_id = any(array(
    select x.job_id from in_flight_jobs x
    where x.job_id = any(p_job_ids) order by x.job_id for update));
$$;

-- Finds the slots that nobody will free. The first look only marks them, and the same sweep looks again a second later.
-- Returned are how many were marked now, and the jobs that were marked for longer than `p_grace`. The caller releases these.
--
--   p_only_marked   only jobs that a verb has marked; then nothing is marked here
create or replace function _sweep_in_flight(p_grace interval, p_only_marked boolean default false)
returns table (job_id bigint, admission bigint, attempt int, ok boolean, retry json, marked int) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
  with missing as materialized (
    select l.* from _lost_slots(case when p_only_marked then array(
      select x.job_id from in_flight_jobs x where x.missing_since = '-infinity') end) l
  ),
  -- locked rows are skipped: a release may be at them, and the two would deadlock
  marked as (
    update in_flight_jobs f set missing_since = clock_timestamp()
    where f.job_id = any(array(
      select x.job_id from in_flight_jobs x
      where not p_only_marked and x.job_id in (select m.job_id from missing m where m.missing_since is null)
      for update skip locked))
    returning 1
  ),
  back as (
    update in_flight_jobs f set missing_since = null
    where f.job_id = any(array(
      select x.job_id from in_flight_jobs x
      where not p_only_marked and x.missing_since is not null and x.job_id not in (select m.job_id from missing m) for update skip locked))
    returning 1
  )
  select m.job_id, m.admission, m.attempt, m.ok, m.retry, (select count(*)::int from marked)
  from missing m where m.missing_since <= clock_timestamp() - p_grace
  union all
  select null, null, null, null, null, (select count(*)::int from marked) where exists (select from marked) or exists (select from back);
$$;

-- The slots that nobody will free, of these jobs in flight (null: of all). Graphile Worker does not have such a job any
-- more, or will not run it again. Or it keeps it for a later time, by its own back-off or because somebody rescheduled it.
--
-- The release parks a job that waits. Two kinds are not parked: a retry that bypasses the gates, and a job whose row the
-- next job of its job key has got. Admission, attempt and revision are returned as they are now, because the row may be
-- another's by the time of the release.
--
-- A job that Graphile Worker does not have any more may still run. An earlier attempt, whose pool counted as dead, may
-- have completed it late. The slot belongs to the later attempt as long as the pool lives that runs it.
--
-- A job that has just ended is released or parked by its own process within moments. The caller waits for that.
create or replace function _lost_slots(p_job_ids bigint[])
returns table (
  job_id bigint, admission bigint, attempt int, policy_id int, missing_since timestamptz, is_gone boolean, ok boolean, retry json
) language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, coalesce(f.attempt, 0)::int, f.policy_id, f.missing_since, j.id is null,
    case when s.postponed and j.revision = f.revision and j.last_error is not null then false end,
    case when s.postponed and j.revision = f.revision and (p.retries = 'restage' or j.attempts = 0) then
      json_strip_nulls(to_json(row(j.attempts, j.revision, null, null, extract(epoch from j.run_at - clock_timestamp()),
        j.task_identifier, j.priority, j.max_attempts, null, null, null)::retry)) end
  from in_flight_jobs f
  join policies p on p.id = f.policy_id
  left join lateral (
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job_id limit 1) j on true
  cross join lateral (
    select j.locked_at is not null as running, j.attempts < j.max_attempts and j.run_at < 'infinity' as waits,
      j.locked_at is null and j.attempts < j.max_attempts
        and j.run_at > clock_timestamp() + interval '1 second'
        and j.run_at < 'infinity' as postponed
  ) s
  where (p_job_ids is null or f.job_id = any(p_job_ids)) and (f.lent_until > clock_timestamp()) is not true
    and case when j.id is null then not exists (
      select from workers w
      where w.pool_id = f.pool_id and w.stale_at > clock_timestamp())
    else s.postponed or not (s.running or s.waits) end;
$$;

-- Charges jobs up to now that have run for more than twice the time their partitions were charged. Returns how many.
create or replace function _sweep_work() returns int language sql volatile
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
  with running as materialized (
    select f.job_id, f.partition_id, f.work, p.name as policy,
      extract(epoch from clock_timestamp() - j.locked_at - coalesce(w.clock_behind, '0'))::float8 as seconds
    from policies p
    join in_flight_jobs f on f.policy_id = p.id
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id
    left join workers w on w.pool_id = j.locked_by
    where p.fair_by_work
    order by f.job_id for update of f skip locked
  ),
  overrun as (
    update in_flight_jobs f set work = r.seconds
    from running r where f.job_id = r.job_id and r.seconds > 2 * r.work
    returning r.policy, r.partition_id, r.seconds - r.work as work
  ),
  arrived as (
    insert into arrivals (policy, partition_id, key, outcome)
    select o.policy, o.partition_id, q.key, jsonb_build_object('work', sum(o.work), 'ended', 0)
    from overrun o join partitions q on q.id = o.partition_id
    group by o.policy, o.partition_id, q.key
  )
  select count(*)::int from overrun;
$$;

-- Unlocks the jobs of worker pools that are dead, so that others run them at once. A pool is dead if it has been silent for
-- longer than it said it would be.
--
-- The jobs keep their slots, which now belong to their next attempts. If the pool was only stopped for a while, the late
-- end of its own attempt frees nothing. Its next heartbeat says that it lives.
--
-- A dead pool's row is kept for a week. A pool that was stopped may go on, fetch jobs, and be killed before its next
-- heartbeat. Then its jobs are locked by a pool that nobody would know of. The row of a pool that ended is kept for ten
-- minutes.
--
-- After a database was away, every pool looks dead. So the pool that sweeps buries another only if its own heartbeats were
-- unbroken for as long as the other one's had time to come.
--
-- A time further ahead than a heartbeat explains comes from a clock that was ahead. It is lowered. Otherwise it would keep
-- a dead pool alive, or keep a living one from judging.
--
-- Graphile Worker locks jobs, and the queues they are in, by the id of the pool.
create or replace function _sweep_workers(p_pool_id text)
returns table (pools int, jobs int) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_pool_ids text[];
  v_job_ids bigint[];
  v_attempts int[];
begin
  update workers w set
    heartbeat_at = least(w.heartbeat_at, clock_timestamp()), stale_at = clock_timestamp() + w.stale_after,
    unbroken_since = least(w.unbroken_since, clock_timestamp()),
    buried_at = case when w.buried_at is not null then least(w.buried_at, clock_timestamp()) end
  where w.pool_id = any(array(
    select x.pool_id from workers x
    where x.stale_at > clock_timestamp() + x.stale_after + interval '1 second'
      or x.heartbeat_at > clock_timestamp() + interval '1 second'
      or x.unbroken_since > clock_timestamp() + interval '1 second'
    order by x.pool_id for update skip locked));
  v_pool_ids := array(
    select w.pool_id from workers w
    where w.stale_at < clock_timestamp()
      and (w.buried_at is null or exists (
        select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = w.pool_id))
      and exists (
      select from workers judge
      where judge.pool_id = p_pool_id and judge.heartbeat_at + judge.stale_after / 2 > clock_timestamp()
        and judge.unbroken_since + greatest(judge.stale_after, w.stale_after) <= clock_timestamp())
    order by w.pool_id for update skip locked);
  select coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.attempts::int), '{}') into v_job_ids, v_attempts
  from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = any(v_pool_ids);
  pools := cardinality(v_pool_ids);
  jobs := cardinality(v_job_ids);
  if pools > 0 then
    update workers w set buried_at = clock_timestamp(), unlocked = w.unlocked + l.jobs - l.used_up, used_up = w.used_up + l.used_up
    from unnest(v_pool_ids) p (id)
    cross join lateral (
      select count(*)::int as jobs, (count(*) filter (where j.attempts >= j.max_attempts))::int as used_up
      from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = p.id) l
    where w.pool_id = p.id;
    perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(v_pool_ids);
    perform _complete_copied(v_job_ids);   -- before anybody else sees them unlocked
    perform _lose_runs(v_job_ids, v_attempts);
  end if;
  delete from workers w
  where w.buried_at < clock_timestamp() - case when w.ended then interval '10 minutes' else interval '7 days' end;
  if jobs > 0 then
    -- unlocking notifies no worker
    perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', jobs)::text);
  end if;
  return next;
end
$$;

-- Lowers times of jobs that a clock left too far ahead: those of quarantined ones, and of slots that are missed. So it does for
-- jobs that wait for a run which is not in flight any more: whoever ended it found them locked. It skips locked rows.
create or replace function _correct_job_times(p_now timestamptz) returns void language plpgsql as $$
begin
  update staged_jobs s set retry_at = p_now
  where s.ctid = any(array(
    select x.ctid from partitions q
    cross join lateral (   -- one look at the index for each partition
      select y.id from staged_jobs y
      where y.partition_id = q.id and not y.due order by coalesce(y.retry_at, y.run_at) limit 1
    ) e
    join staged_jobs x on x.id = e.id
    where q.due_at > p_now + interval '1 minute' and q.due_at < 'infinity' and x.retry_at < 'infinity'
      and x.retry_at > p_now + _quarantine_for(x.failures) + interval '1 minute'
    for update of x skip locked));
  update keyless_jobs k set retry_at = p_now
  where k.staged_id = any(array(
    select x.staged_id from keyless_jobs x
    where x.retry_at > p_now + _quarantine_for(x.failures) + interval '1 minute' and x.retry_at < 'infinity'
    for update skip locked));
  update in_flight_jobs f set missing_since = p_now
  where f.job_id = any(array(
    select x.job_id from in_flight_jobs x where x.missing_since > p_now + interval '1 second' for update skip locked));
  perform _end_waits(array(
    select distinct s.waits_for from staged_jobs s
    where s.waits_for is not null and not exists (
      select from in_flight_jobs f where f.job_id = s.waits_for and f.cancelled_at is not null)));
end
$$;

-- Deletes the in-flight row of a job, if its end is that of this admission and attempt (null: of any). Its columns are null if there
-- is none.
create or replace function _end_slot(p_job_id bigint, p_admission bigint, p_attempt int) returns in_flight_jobs
language plpgsql as $$
declare
  v_slot in_flight_jobs;
begin
  delete from in_flight_jobs f
  where f.job_id = p_job_id and _is_end_of(p_admission, p_attempt, f.admission, f.attempt)
  returning f.* into v_slot;
  return v_slot;
end
$$;

-- A job that takes the place of another in its row (`p_before`; no id: of none) keeps that one's slots, beside its own.
create or replace function _keep_slots(p_job_id bigint, p_revision int, p_before in_flight_jobs) returns void language plpgsql as $$
begin
  update in_flight_jobs f set
    revision = p_revision,   -- another one may be in its row by now
    limiter_ids = f.limiter_ids || (p_before).limiter_ids,
    paid = case when (p_before).job_id is not null then _paid_again(p_before, null, true) end
  where f.job_id = p_job_id and ((p_before).job_id is not null or f.revision <> p_revision);
end
$$;

-- What these jobs have paid by now.
create or replace function _set_paid(p_job_ids bigint[], p_paid jsonb[]) returns void language plpgsql as $$
begin
  update in_flight_jobs f set paid = n.paid from unnest(p_job_ids, p_paid) n (job_id, paid)
  where f.job_id = n.job_id and f.job_id = any(p_job_ids);
end
$$;

-- Deletes the in-flight rows of these jobs, and counts their ends. See _free_slots, which says which rows stay: `left_ids`.
--
--   p_all         whether the caller needs the rows: `deleted`
--   limiter_ids   where they occupied slots, and `slots` how many
--   job_ids       the jobs, and `policy_ids` their policies
--   cancelled     those that were cancelled
create or replace function _end_slots(
  p_jobs finished_job[], p_job_ids bigint[], p_limiter_ids bigint[], p_all boolean, p_now timestamptz,
  out left_ids bigint[], out deleted in_flight_jobs[], out limiter_ids bigint[], out slots int[], out job_ids bigint[],
  out policy_ids int[], out is_recorded boolean, out cancelled bigint[]
) language plpgsql as $$   -- planned as _free_slots
begin
  with locked as materialized (
    select f.job_id, f.attempt, f.admission, f.policy_id, f.limiter_ids
    from in_flight_jobs f
    where f.job_id = any(p_job_ids) order by f.job_id for update
  ),
  -- By hash, and once for each list: with "<@" each job of many partitions was compared with the limiters of all.
  unlocked as materialized (
    select g.limiter_ids from (select distinct h.limiter_ids from locked h) g
    where exists (
      select from unnest(g.limiter_ids) u (id) where (u.id in (select unnest(p_limiter_ids))) is not true)
  ),
  -- A job may have several ends. Those of others than it has the slot now free nothing.
  ends as materialized (
    select h.job_id, h.policy_id, f.ok, f.lag_ms, f.duration_ms, h.limiter_ids in (select u.limiter_ids from unlocked u) as stays
    from locked h join unnest(p_jobs) f on f.job = h.job_id
    where _is_end_of(f.admission, f.attempt, h.admission, h.attempt)
  ),
  gone as (
    delete from in_flight_jobs f
    -- Not by ctid: if somebody changed a row before it was locked, its new version is not visible to this statement.
    where f.job_id = any(array(select e.job_id from ends e where not e.stays))
    returning f.*
  ),
  per_limiter as (
    select u.id, sum(g.jobs)::int as jobs
    from (select g.limiter_ids, count(*) as jobs from gone g group by g.limiter_ids) g
    cross join unnest(g.limiter_ids) u (id) group by u.id
  ),
  appended as (
    insert into activity (policy_id, at, succeeded, failed, lags, runs)
    select e.policy_id, p_now, count(*) filter (where e.ok), count(*) filter (where not e.ok),
      array_agg(_seconds(e.lag_ms)), array_agg(_seconds(e.duration_ms))
    from ends e where not e.stays and e.ok is not null
    group by e.policy_id
  )
  select
    array(select distinct e.job_id from ends e where e.stays), array(select g::in_flight_jobs from gone g where p_all),
    l.ids, l.jobs, coalesce(g.ids, '{}'), g.policies, coalesce(g.recorded, false), g.cancelled
  into left_ids, deleted, limiter_ids, slots, job_ids, policy_ids, is_recorded, cancelled
  from (select array_agg(n.id) as ids, array_agg(n.jobs) as jobs from per_limiter n) l
  cross join (
    select array_agg(g.job_id) as ids, array_agg(g.policy_id) as policies, bool_or(g.pool_id is not null) as recorded,
      array_agg(g.job_id) filter (where g.cancelled_at is not null) as cancelled
    from gone g) g;
end
$$;
