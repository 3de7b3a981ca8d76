-- The history: what happened to each job.

-- Writes to the history which jobs were admitted, and how long they had waited for what. A job that left staging without an
-- admission was replaced, or is gone if it was parked and its row is not there any more. Replaced was also the job whose row
-- in Graphile Worker a newer one of its key has got.
create or replace function _record_admissions(
  p_pasts past[], p_admissions admission[], p_now timestamptz
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _charge
begin
  if exists (select from unnest(p_admissions) a where a.counted) then
    update history h set ended_at = p_now, outcome = 'replaced'
    from unnest(p_admissions) a
    where a.counted and a.job_id = h.job_id and a.staged_id <> h.staged_id and h.ended_at is null
      and h.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted));
  end if;
  insert into history as h (
    staged_id, policy_id, partition, task_identifier, job_key, job_id, added_at, due_at, admitted_at, last_admitted_at,
    ended_at, outcome, waited, trace_id)
  select k.staged_id, k.policy_id, k.partition, k.task_identifier, k.job_key, coalesce(a.job_id, k.job_id), k.added_at, k.due_at,
    x.admitted_at, x.admitted_at, case when not a.admitted then p_now end, x.outcome, coalesce(w.waited, '{}'), k.trace_id
  from unnest(p_admissions) a
  join unnest(p_pasts) k on k.staged_id = a.staged_id
  left join _waited(p_pasts, p_now) w on w.staged_id = k.staged_id
  cross join lateral (
    select case when a.admitted then p_now end as admitted_at,
      case when a.admitted then null
        when k.job_id is not null
          and (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = k.job_id limit 1) is null then 'gone'
        else 'replaced' end as outcome
  ) x
  order by k.staged_id
  on conflict (staged_id) do update set
    policy_id = excluded.policy_id, partition = excluded.partition, job_id = excluded.job_id,
    admitted_at = coalesce(h.admitted_at, excluded.admitted_at),
    last_admitted_at = coalesce(excluded.last_admitted_at, h.last_admitted_at),
    -- one that failed for good may have been brought back
    started_at = null, ended_at = excluded.ended_at, outcome = excluded.outcome, error = null,
    waited = _sum_seconds(h.waited, excluded.waited);
end
$$;

-- What the history has to know of these staged jobs before they leave staging. Jobs of policies without a history are left out.
create or replace function _pasts_of(p_staged_ids bigint[])
returns past[] language sql stable as $$
  select array(
    select row(
        s.id, p.id, s.partition_id, coalesce(q.key, a.key), s.task_identifier, s.job_key, s.parked_job_id,
        -- a parked job has a new row in staging, whose times are those of its retry
        case when s.parked_job_id is null then s.created_at end, case when s.parked_job_id is null then s.run_at end,
        s.created_at, greatest(s.created_at, s.run_at), _trace_id_of(s.traceparent))::past
    from staged_jobs s
    left join partitions q on q.id = s.partition_id
    left join policy_tasks t on q.id is null and t.task_identifier = s.task_identifier
    join policies p on p.id = coalesce(q.policy_id, t.policy_id)
    -- the router has not made its partition yet
    left join lateral (
      select x.key from arrivals x
      where q.id is null and x.policy = p.name and x.partition_id = s.partition_id limit 1) a on true
    where s.id = any(p_staged_ids) and p.history_kept_for is not null);
$$;

-- Writes to the history which of these released jobs have ended for good, and how. Retries of failed jobs are staged by now.
create or replace function _record_ends(
  p_gone in_flight_jobs[], p_jobs finished_job[],
  p_now timestamptz
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
begin
  insert into history as h (
    staged_id, policy_id, partition, task_identifier, job_id, admitted_at, last_admitted_at, started_at, ended_at, outcome,
    attempts, error)
  select distinct on (e.staged_id) e.staged_id, e.policy_id, e.key, e.task, e.job_id, e.admitted_at, e.admitted_at,
    least(e.started_at, p_now), case when e.duration_ms is null or e.started_at is null then p_now
      else least(e.started_at + _wait(e.duration_ms / 1000), p_now) end,
    e.outcome, e.attempt, case when e.ok is not true then e.error end
  from (
    select g.staged_id, g.policy_id, g.job_id, g.admitted_at, q.key, f.ok, f.duration_ms, f.ordinality,
      coalesce(f.task, j.task_identifier) as task, coalesce(f.attempt, j.attempts) as attempt,
      coalesce(f.error, case when j.attempts >= j.max_attempts
        then _first_line(j.last_error) end) as error,
      coalesce(g.started_at,
        case when f.lag_ms is not null then g.admitted_at + _wait(f.lag_ms / 1000) end) as started_at,
      _outcome(
        f.ok, (select true from staged_jobs s where s.parked_job_id = g.job_id limit 1),
        j.attempts, j.max_attempts, j.locked_at is not null) as outcome
    from unnest(p_gone) g
    join unnest(p_jobs) f on f.job = g.job_id
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
    join policies p on p.id = g.policy_id and p.history_kept_for is not null
      and p.id = any(array(select x.policy_id from unnest(p_gone) x))
    left join partitions q
      on q.id = g.partition_id and q.id = any(array(select x.partition_id from unnest(p_gone) x))
    left join lateral (   -- one look at the index for each
      select x.id, x.task_identifier, x.attempts::int, x.max_attempts, x.last_error, x.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = g.job_id
        and _is_row_of(g.revision, g.staged_id, x.revision, x.flags) limit 1) j on true
  ) e
  where e.outcome is not null order by e.staged_id, e.ordinality desc
  on conflict (staged_id) do update set
    job_id = excluded.job_id, started_at = excluded.started_at, ended_at = excluded.ended_at, outcome = excluded.outcome,
    attempts = excluded.attempts, error = excluded.error,
    task_identifier = coalesce(h.task_identifier, excluded.task_identifier);
end
$$;

-- Adds the failed attempts of released jobs to their history: when each started and ended, and the first line of its error. Of a
-- job the last ten are kept, so that one with many attempts does not make its row longer with each.
create or replace function _record_failures(
  p_gone in_flight_jobs[], p_jobs finished_job[],
  p_now timestamptz
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
begin
  if not exists (select from unnest(p_jobs) f where f.ok is false) then
    return;
  end if;
  update history h set failed_attempts = (
      select jsonb_agg(x.value order by x.n)
      from (
        select a.value, a.n, count(*) over () as attempts
        from jsonb_array_elements(h.failed_attempts || f.failed) with ordinality a (value, n)
      ) x where x.n > x.attempts - 10)
  from (
    select distinct on (g.staged_id) g.staged_id, jsonb_build_object('attempt', e.attempt, 'started_at', s.started_at,
        'ended_at', least(s.started_at + _wait(e.duration_ms / 1000), p_now), 'error', e.error) as failed
    from unnest(p_gone) g
    join unnest(p_jobs) e on e.job = g.job_id and e.ok is false
      and _is_end_of(e.admission, e.attempt, g.admission, g.attempt)
    cross join lateral (
      select least(coalesce(g.started_at, g.admitted_at + _wait(e.lag_ms / 1000)), p_now) as started_at
    ) s
    order by g.staged_id, e.ordinality desc
  ) f
  where h.staged_id = f.staged_id and h.staged_id = any(array(select x.staged_id from unnest(p_gone) x));
end
$$;

-- Writes to the history that staged jobs leave staging for good, without an admission, and counts them in their job groups.
-- Called before they are deleted, by whoever has locked them.
create or replace function _record_removed(
  p_staged_ids bigint[], p_outcome text, p_error text default null
) returns void language plpgsql volatile as $$
declare
  v_now timestamptz := clock_timestamp();
  v_pasts past[];
begin
  if exists (select from groups) then
    -- somebody may have had a parked job retried: then it goes on, and its own end counts
    perform _end_in_groups(array_agg(e.id), null, array_agg(e.outcome))
    from (
      select s.id, case when s.parked_job_id is null or _is_parked(
          s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags) then p_outcome
        else _outcome_of_staged(s.id, s.parked_job_id, s.parked_revision) end as outcome
      from staged_jobs s
      left join lateral (
        select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = s.parked_job_id limit 1) j on true
      where s.id = any(p_staged_ids)
    ) e where e.outcome is not null having count(*) > 0;
  end if;
  if not exists (select from policies p where p.history_kept_for is not null) then
    return;
  end if;
  v_pasts := _pasts_of(p_staged_ids);
  insert into history as h (
    staged_id, policy_id, partition, task_identifier, job_key, job_id, added_at, due_at, ended_at, outcome, error, waited,
    trace_id)
  select k.staged_id, k.policy_id, k.partition, k.task_identifier, k.job_key, k.job_id, k.added_at, k.due_at,
    v_now, p_outcome, p_error, coalesce(w.waited, '{}'), k.trace_id
  from unnest(v_pasts) k
  left join _waited(v_pasts, v_now) w on w.staged_id = k.staged_id
  on conflict (staged_id) do update set
    ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
    waited = _sum_seconds(h.waited, excluded.waited);
end
$$;

-- Records from when partitions wait for another reason than before. Called once the pass has decided about them, under their
-- locks.
--
-- The name of the gate follows the reason, as in throttle_empty:account. A policy may have several gates of a kind.
--
--   p_is_pass   a pass claims no partition that is stopped. So a stop of these is over, also if nobody has recorded its end
create or replace function _record_reasons(
  p_policy_id int, p_partition_ids uuid[], p_now timestamptz, p_is_pass boolean
) returns void language plpgsql volatile as $$
begin
  if p_is_pass then
    update stop_times s set until_at = greatest(s.from_at, p_now)
    where s.policy_id = p_policy_id and s.until_at > p_now and s.partition_id = any(p_partition_ids);
  end if;
  insert into reasons as r (partition_id, from_at, policy_id, reason, waited)
  select q.id, a.at, p_policy_id, k.reason, _reasons_until(q.id, a.at)
  from partitions q
  left join lateral (
    select x.from_at, x.reason from reasons x
    where x.partition_id = q.id order by x.from_at desc limit 1) l on true
  left join limiters b on b.id = q.blocked_on
  cross join lateral (
    select q.denied_reason || coalesce(case when b.kind <> 'ahead' then ':' || b.gate end, '') as reason
  ) k
  cross join lateral (select greatest(p_now, l.from_at) as at) a   -- a clock may go back
  where q.id = any(p_partition_ids) and l.reason is distinct from k.reason
  on conflict (partition_id, from_at) do update set reason = excluded.reason;
end
$$;

-- Records that a policy, or one of its partitions, is stopped until a time. A pause replaces the one
-- before, and a hold adds to it. The time -infinity ends either. Of a policy without a history nothing is recorded.
--
-- A hold that goes on has one row. Each job's wait is worked out from all rows, and 50 jobs at once may hold a partition.
--
--   p_partition_id   null: the whole policy
create or replace function _record_stop(
  p_policy_id int, p_partition_id uuid, p_reason text, p_until timestamptz, p_now timestamptz
) returns void language plpgsql volatile as $$
declare
  v_goes_on boolean;
  v_partition_id uuid := coalesce(p_partition_id, '00000000-0000-0000-0000-000000000000');
begin
  if exists (
    select from policies p where p.id = p_policy_id and p.history_kept_for is not null
  ) then
    update stop_times s set until_at = greatest(s.from_at, p_now)
    where s.policy_id = p_policy_id and s.partition_id = v_partition_id and s.reason = p_reason and s.until_at > p_now
      and (p_reason = 'paused' or p_until = '-infinity');
    update stop_times s set until_at = greatest(s.until_at, p_until)
    where p_reason <> 'paused' and p_until > p_now and s.ctid = any(array(
      select x.ctid from stop_times x
      where x.policy_id = p_policy_id and x.partition_id = v_partition_id and x.reason = p_reason
        and x.until_at >= p_now and x.from_at <= p_now
      limit 1 for update skip locked));
    v_goes_on := found;
    insert into stop_times (policy_id, partition_id, reason, from_at, until_at)
    select p_policy_id, v_partition_id, p_reason, p_now, p_until where p_until > p_now and not v_goes_on;
  end if;
end
$$;

-- Ends the history of jobs that left both staging and their slots, and that no release has ended. An operator took the slot of
-- a job that ran, or unstaged its parked job. It skips locked rows.
--
-- It reads a page of those that have not ended: at most `p_max`, by policy and staged_id, behind the place that the caller
-- gives. Many may go on, such as retries that go past the gates. If it read the first ones again and again, it would never
-- come to the others.
--
--   closed      how many it has ended
--   policy_id, staged_id   the place behind which the next page begins; null: this was the last one
create or replace function _close_history(
  p_now timestamptz, p_policy_id int default 0, p_staged_id bigint default 0, p_max int default 10000,
  out closed int, out policy_id int, out staged_id bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_page bigint[] := array(
    select h.staged_id from policies p
    cross join lateral (
      select y.staged_id from history y
      where y.policy_id = p.id and y.ended_at is null and y.staged_id > case when p.id = p_policy_id then p_staged_id else 0 end
      order by y.ended_at, y.staged_id limit p_max
    ) h
    where p.history_kept_for is not null and p.id >= p_policy_id
    order by p.id, h.staged_id limit p_max);
begin
  if cardinality(v_page) = p_max then
    select h.policy_id, h.staged_id into policy_id, staged_id
    from history h where h.staged_id = v_page[p_max];
  end if;
  with lost as materialized (
    select h.staged_id, h.job_id from history h
    where h.staged_id = any(v_page) and h.ended_at is null and h.last_admitted_at < p_now - interval '1 minute'
      and not exists (
        select from in_flight_jobs f
        where f.job_id = h.job_id and f.staged_id = h.staged_id)
      and not exists (
        select from staged_jobs s where s.id = h.staged_id or s.parked_job_id = h.job_id)
    for update of h skip locked
  )
  update history h set ended_at = p_now,
    outcome = case when l.is_replaced then 'replaced' when l.has_failed then 'failed' else 'gone' end,
    attempts = l.attempts, error = case when l.has_failed and not l.is_replaced then l.error end
  from (
    select x.staged_id, f.job_id is not null as is_replaced, j.attempts >= j.max_attempts is true as has_failed, j.attempts,
      _first_line(j.last_error) as error,
      j.id is not null and (j.locked_at is not null or j.attempts < j.max_attempts) as goes_on
    from lost x
    left join in_flight_jobs f on f.job_id = x.job_id
    left join lateral (
      select y.id, y.attempts::int, y.max_attempts, y.last_error, y.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs y where y.id = x.job_id limit 1) j on true
  ) l
  where h.staged_id = l.staged_id and (l.is_replaced or not l.goes_on);
  get diagnostics closed = row_count;
end
$$;

-- Deletes history that is older than its policy keeps it, or whose policy has none any more. It deletes at most 10,000 rows of
-- each table a call. Of the reasons of a partition the last one stays, because it is in force. Returns how many it has deleted. It skips
-- rows that another session has locked.
create or replace function _collect_history(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_removed int;
  v_removed_in_all int := 0;
begin
  delete from history x where x.ctid = any(array(
    select h.ctid from policies p
    join history h on h.policy_id = p.id
    where p.history_kept_for is null or h.ended_at < p_now - make_interval(secs => p.history_kept_for)
    limit 10000 for update of h skip locked));
  get diagnostics v_removed = row_count;
  v_removed_in_all := v_removed;
  delete from reasons x where x.ctid = any(array(
    select r.ctid from policies p
    join reasons r on r.policy_id = p.id
    where p.history_kept_for is null or (r.from_at < p_now - make_interval(secs => p.history_kept_for) and (
      not exists (select from partitions q where q.id = r.partition_id)
      or exists (
        select from reasons l where l.partition_id = r.partition_id
          and l.from_at > r.from_at and l.from_at < p_now - make_interval(secs => p.history_kept_for))))
    limit 10000 for update of r skip locked));
  get diagnostics v_removed = row_count;
  v_removed_in_all := v_removed_in_all + v_removed;
  delete from stop_times x where x.ctid = any(array(
    select s.ctid from policies p
    join stop_times s on s.policy_id = p.id
    where p.history_kept_for is null or s.until_at < p_now - make_interval(secs => p.history_kept_for)
    limit 10000 for update of s skip locked));
  get diagnostics v_removed = row_count;
  return v_removed_in_all + v_removed;
end
$$;
