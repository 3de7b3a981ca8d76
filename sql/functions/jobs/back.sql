-- Jobs that failed or were requeued come back to staging.

-- Parks these jobs, and returns those it has parked. It leaves jobs that another transaction has locked, and jobs that were
-- replaced under their key since they were read in this revision.
--
-- Limiters are locked by now, so it tries in halves, and waits some 40 times at most. The caller draws the order by lot: if
-- the same 60 locked jobs came first each time, the others would never be parked.
create or replace function _park(p_job_ids bigint[], p_revisions int[])
returns bigint[] language plpgsql
set lock_timeout = '50ms' as $$
declare
  v_parked bigint[] := '{}';
  v_todo jsonb := jsonb_build_array(jsonb_build_array(1, cardinality(p_job_ids)));
  v_from int;
  v_to int;
  v_ids bigint[];
  v_is_replaced boolean;
  v_waits int := 0;
begin
  while cardinality(p_job_ids) > 0 and jsonb_array_length(v_todo) > 0 and v_waits < 40 loop
    v_from := v_todo -> -1 ->> 0;
    v_to := v_todo -> -1 ->> 1;
    v_todo := v_todo - -1;
    begin
      select coalesce(array_agg(j.id), '{}'), bool_or(j.revision <> u.revision) into v_ids, v_is_replaced
      from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
        p_job_ids[v_from:v_to], run_at => 'infinity', priority => 32767) j
      join unnest(p_job_ids, p_revisions) u (id, revision) on u.id = j.id;
      if v_is_replaced then
        raise lock_not_available;
      end if;
      v_parked := v_parked || v_ids;
    exception when lock_not_available then
      perform set_config('lock_timeout', '5ms', true);
      v_waits := v_waits + 1;
      if v_from < v_to then
        v_todo := v_todo || _halves(v_from, v_to);
      end if;
    end;
  end loop;
  return v_parked;
end
$$;

-- Stages a row for each job that _retry has parked, due at its back-off time.
--
--   p_jobs        what is known of their ends
--   p_revisions   those that the parked jobs were read in, in the order of `p_parked`
--
-- A flush may bring thousands of failed jobs. By nested loops, for which the planner takes the ten rows it expects of an
-- array, each would be compared with each. So joins are by hash, and each table's ids stand beside the join, as in _charge.
create or replace function _stage_retries(
  p_jobs finished_job[], p_parked bigint[], p_revisions int[], p_now timestamptz
) returns void language plpgsql
set enable_nestloop = off as $$
begin
  with due as materialized (
    select f.job, k.revision, i.policy_id,
      -- a copy of the job, with its flags, may be staged under its id
      case when exists (
          select from staged_jobs s
          where s.id = i.staged_id and s.parked_job_id is distinct from f.job)
        then nextval(pg_get_serial_sequence('staged_jobs', 'id'))
        else i.staged_id end as staged_id, i.cost, p.name as policy, f.retry,
      _sort_at_again(p.job_order, i.sort_at) as sort_at,
      p_now + _wait((f.retry).after) as run_at,
      coalesce((f.retry).priority, 0::smallint) as priority,
      coalesce(((f.retry).move).key, q.key) as key, q.shard, case when ((f.retry).move).key is null then i.partition_id
        else _partition_id(p.name, ((f.retry).move).key, ((f.retry).move).lane) end as partition_id
    from unnest(p_parked, p_revisions) k (id, revision)
    join unnest(p_jobs) f on f.job = k.id
    join in_flight_jobs i on i.job_id = k.id and i.job_id = any(p_parked)
    join policies p on p.id = i.policy_id
    join partitions q on q.id = i.partition_id and q.id = any(array(
      select h.partition_id from in_flight_jobs h where h.job_id = any(p_parked)))
  ),
  staged as (
    insert into staged_jobs as s (id, partition_id, task_identifier, payload, run_at,
      max_attempts, priority, cost, due, parked_job_id, parked_revision, sort_at)
    overriding system value
    select d.staged_id, d.partition_id, (d.retry).task, '{}',
      d.run_at, (d.retry)."maxAttempts", d.priority, coalesce(((d.retry).move).cost, d.cost), d.run_at <= p_now, d.job,
      d.revision, d.sort_at
    from due d
    -- the flush before parked it and left its slot; or somebody retried it by hand, and it failed again
    on conflict (parked_job_id) where parked_job_id is not null do update set
      partition_id = excluded.partition_id, left_partition_id = s.partition_id, run_at = excluded.run_at,
      max_attempts = excluded.max_attempts, priority = excluded.priority, cost = excluded.cost, due = excluded.due,
      parked_revision = excluded.parked_revision, sort_at = excluded.sort_at, retry_at = null, failures = 0, error = null
    returning *, (xmax = 0) as fresh
  ),
  notified as materialized (
    select _notify(d.policy), _count_pending(d.policy, d.jobs)
    from (
      select d.policy, (count(*) filter (where s.fresh))::int as jobs
      from staged s join due d on d.job = s.parked_job_id group by d.policy
    ) d
  ),
  left_behind as materialized (
    select _head_changed(
      array(select s.left_partition_id from staged s where s.left_partition_id <> s.partition_id), -1)
  )
  insert into arrivals overriding user value
  select a.* from staged s join due d on d.job = s.parked_job_id
  cross join lateral _work_arrival(
    d.policy, s.partition_id, d.key, coalesce(((d.retry).move).shard, d.shard),
    -- If the job moves, its context and limits count only for a new partition: this version makes the arrival the oldest.
    case when ((d.retry).move).key is null then 0 else -2147483648 end, ((d.retry).move).context,
    ((d.retry).move).weight, ((d.retry).move).limits, s.run_at, s.cost, s.due, s.priority, s.run_at, s.id,
    p_jobs => (s.left_partition_id is distinct from s.partition_id)::int) a
  where (select count(*) from notified) + (select count(*) from left_behind) >= 0;
end
$$;

-- Takes an attempt off parked jobs whose run asked to come back later: it does not count. A flush may come again, and takes
-- off no second one.
create or replace function _refund_attempts(
  p_jobs finished_job[], p_parked_ids bigint[]
) returns void language plpgsql as $$
begin
  perform from unnest(p_jobs) f
  cross join lateral (   -- one look at the index for each
    select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job limit 1) j
  cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[j.id], attempts => j.attempts - 1)
  where (f.retry).refund and j.id = any(p_parked_ids) and j.attempts = (f.retry).attempt;
end
$$;

-- Parks one job, and stages a row that refers to it.
create or replace function _stage_parked(
  p_policy text, p_version int, p_staged_id bigint, p_job_id bigint, p_revision int, p_task text, p_payload json,
  p_queue_name text, p_run_at timestamptz, p_priority int, p_max_attempts int, p_definition jsonb, p_key text
) returns void language plpgsql as $$
declare
  v_id uuid := case when p_key is not null then _partition_id(p_policy, p_key) end;
  v_due boolean := p_run_at <= clock_timestamp();
begin
  insert into staged_jobs (
    id, partition_id, task_identifier, payload, queue_name, run_at, max_attempts, priority, cost, due, parked_job_id,
    parked_revision)
  overriding system value
  values (p_staged_id, v_id, p_task, p_payload, p_queue_name, p_run_at, p_max_attempts::smallint, p_priority::smallint,
    coalesce((p_definition ->> 'cost')::float8, 1), v_due, p_job_id, p_revision)
  on conflict do nothing;
  if not found then
    -- somebody else has staged it, and parked its row, and the caller has given the row a time since
    perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[s.parked_job_id], run_at => 'infinity', priority => 32767)
    from staged_jobs s where s.parked_job_id = p_job_id;
    return;
  end if;
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[p_job_id], run_at => 'infinity', priority => 32767);
  perform _count_pending(p_policy, 1);
  if v_id is null then
    insert into keyless_jobs (staged_id, policy) values (p_staged_id, p_policy);
  else
    insert into arrivals overriding user value
    select a.* from _work_arrival(
      p_policy, v_id, p_key, p_definition ->> 'shard', p_version, null, (p_definition ->> 'weight')::float8,
      _constant_limits(p_definition), p_run_at, coalesce((p_definition ->> 'cost')::float8, 1),
      v_due, p_priority::smallint, p_run_at, p_staged_id) a;
  end if;
  perform _notify(p_policy);
end
$$;

-- Stages a job that has never run as it was staged before. If a newer job of its key is staged, it has no key, and runs
-- beside that one. So it is in Graphile Worker if a newer one comes after a worker has fetched it.
--
-- Graphile Worker may be taking the key off the original at this moment, for a job that is added past its policy. The
-- copy would pass for the newest of the key. Only a look after it is staged is sure, and the caller then tries again.
create or replace function _stage_requeued(
  p_policy policies, p_slot in_flight_jobs,
  p_job record, p_payload json, p_run_at timestamptz, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_place place := (p_slot).place;
  v_key text := p_job.key;
begin
  for try in 1 .. 2 loop
    insert into staged_jobs (
      id, partition_id, task_identifier, payload, queue_name, run_at, run_at_given, max_attempts, job_key, priority, flags,
      cost, due, created_at, known_job_id, known_revision, droppable, traceparent, expires_at, sort_at)
    overriding system value
    values (
      (p_slot).staged_id, (p_slot).partition_id, p_job.task_identifier, p_payload, p_job.queue_name, p_run_at,
      coalesce((v_place).run_at_given, false), p_job.max_attempts, v_key, p_job.priority,
      _callers_flags(p_job.flags), (p_slot).cost, true, coalesce((v_place).added_at, p_now),
      p_job.id, p_job.revision,
      _is_droppable((p_policy).when_full, (p_policy).max_pending_in_all),
      _traceparent_of(p_job.flags), (v_place).expires_at,
      _sort_at_again((p_policy).job_order, (p_slot).sort_at))
    on conflict (job_key) where job_key is not null do nothing;
    exit when found;
    v_key := null;
  end loop;
  if v_key is not null and not exists (
    select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = p_job.id and j.key = v_key
  ) then
    raise exception using errcode = 'DPOUT';
  end if;
end
$$;

-- Parks a copy of a job that has run before, and stages a row that refers to it. The copy has the attempts and the error
-- that the job had. Without them a new row of Graphile Worker's would count from 0.
--
-- If a newer job of its key is staged, it has no key, as in _stage_requeued. If a newer one is being added to Graphile
-- Worker, this would overwrite it. Its row is no new one then, and the caller tries again.
create or replace function _park_requeued(
  p_policy policies, p_slot in_flight_jobs,
  p_job record, p_payload json, p_run_at timestamptz, p_now timestamptz
) returns void language plpgsql as $$
declare
  v_key text := case when not exists (
    select from staged_jobs s where s.job_key = p_job.key) then p_job.key end;
  v_copy record;
begin
  select j.id, j.revision into v_copy from :GRAPHILE_WORKER_SCHEMA.add_jobs(array[row(
    p_job.task_identifier, p_payload, p_job.queue_name, 'infinity', p_job.max_attempts, v_key, 32767,
    _callers_flags(p_job.flags) || _ticket(
      (p_slot).staged_id, _admission_now(), (p_slot).partition_id, v_key,
      _trace_text(_traceparent_of(p_job.flags),
        coalesce(((p_slot).place).added_at, p_now), p_run_at, true))
  ):::GRAPHILE_WORKER_SCHEMA.job_spec]) j;
  if v_copy.revision > 0 then
    raise exception using errcode = 'DPOUT';
  end if;
  -- the one public way to write an error also uses the attempts up, so that comes first
  perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[v_copy.id], p_job.last_error)
  where p_job.last_error is not null;
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[v_copy.id], run_at => 'infinity', attempts => p_job.attempts - 1);
  insert into staged_jobs (
    id, partition_id, task_identifier, run_at, max_attempts, priority, cost, due, parked_job_id, parked_revision, sort_at)
  overriding system value
  values (
    (p_slot).staged_id, (p_slot).partition_id, p_job.task_identifier, p_run_at, p_job.max_attempts, p_job.priority,
    (p_slot).cost, true, v_copy.id, v_copy.revision,
    _sort_at_again((p_policy).job_order, (p_slot).sort_at));
end
$$;

-- Locks these rows of Graphile Worker's, by its own reschedule_jobs, which changes only updated_at here. Returns those that
-- still have the given revision. Without it, whoever is about to end a job could end the next job of its key, which got the
-- row in between.
create or replace function _lock_in_revision(p_job_ids bigint[], p_revisions int[])
returns bigint[] language sql volatile as $$
  select coalesce(array_agg(j.id), '{}')
  from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(p_job_ids) j
  join unnest(p_job_ids, p_revisions) u (id, revision) on u.id = j.id and u.revision = j.revision;
$$;

-- The staged row of a job that was parked, if Graphile Worker's row still has that job. Null: there is none.
create or replace function _parked_row_of(p_job_id bigint) returns bigint language sql stable as $$
  select s.id from staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
  where s.parked_job_id = p_job_id
    and _is_row_of(s.parked_revision, s.id, j.revision, j.flags);
$$;

-- Fails replaced parked jobs of these keys for good. Such a job's row was kept for a newer job of its key. If the newer job
-- leaves staging without running, nothing would ever run or end the row. Returns how many it failed.
create or replace function _give_up_replaced(p_job_keys text[]) returns int
language plpgsql volatile as $$
declare
  v_ids bigint[];
  v_revisions int[];
begin
  select array_agg(j.id), array_agg(j.revision) into v_ids, v_revisions
  from unnest(p_job_keys) u (key)
  cross join lateral (
    select x.id, x.revision from :GRAPHILE_WORKER_SCHEMA.jobs x
    where x.key = u.key and x.run_at = 'infinity' and x.locked_at is null and x.attempts < x.max_attempts
      and (_is_ours(x.flags, x.created_at, x.key) or exists (
        select from replaced_jobs r where r.job_id = x.id))
    limit 1) j
  where not exists (
      select from staged_jobs s where s.parked_job_id = j.id or s.job_key = u.key)
    and not exists (select from in_flight_jobs f where f.job_id = j.id);
  if v_ids is null then
    return 0;
  end if;
  v_ids := _lock_in_revision(v_ids, v_revisions);
  return (
    select count(*) from :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(
      v_ids, _replaced_error()));
end
$$;

-- Cleans up after jobs that left Graphile Worker without running. Deletes the staged rows of parked ones, and marks the slots of
-- the others for the next sweep.
create or replace function _job_gone(p_job_ids bigint[]) returns void language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select s.id from staged_jobs s
    where s.parked_job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id and j.attempts < j.max_attempts)
    order by s.id for update);
begin
  if v_ids <> '{}' then
    insert into events (policy_id, at, kind, staged_id, job_id, partition_id, facts)
    select e.policy_id, e.at, e.kind, e.staged_id, e.job_id, e.partition_id, e.facts || jsonb_build_object(
      'outcome', case when j.id is null then 'removed' else 'failed' end, 'error', _first_line(j.last_error))
    from unnest(_leaving(v_ids, clock_timestamp())) e
    left join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = e.job_id
    where j.locked_at is null;   -- somebody may have had it retried: while it runs, its own end is awaited
    -- somebody may run a failed job again, so it must not keep the last priority
    perform r.id from staged_jobs s
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[s.parked_job_id], priority => s.priority) r
    where s.id = any(v_ids);
    perform _count_removed(array_agg(s.task_identifier), array_agg(s.partition_id))
    from staged_jobs s where s.id = any(v_ids);
    delete from staged_jobs s where s.id = any(v_ids);
  end if;
  perform _leave_to_sweep(array(
    select u.id from unnest(p_job_ids) u (id)
    where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null)));
end
$$;
