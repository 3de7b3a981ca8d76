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
--   p_jobs               what is known of their ends
--   p_ids, p_revisions   those that _retry tried to park, and the revisions that it read them in
--
-- A flush may bring thousands of failed jobs. By nested loops, for which the planner takes the ten rows it expects of an
-- array, each would be compared with each. So joins are by hash, and each table's ids stand beside the join, as in _charge.
create or replace function _stage_retries(
  p_jobs finished_job[], p_parked bigint[], p_ids bigint[], p_revisions int[], p_now timestamptz
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
    from unnest(p_ids, p_revisions) k (id, revision)
    join unnest(p_parked) u (id) on u.id = k.id
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

-- Stages a job that was staged or in Graphile Worker before, and tells the router. If it has no partition, JavaScript works that
-- out. False: it, or a job of its key, is staged already.
--
--   p_job         the columns that are null get the table's defaults
--   p_partition   policy, key, shard, version and numbers of its partition; without a partition only the policy
create or replace function _stage_back(p_job staged_jobs, p_partition arrivals) returns boolean
language plpgsql as $$
begin
  p_job.payload := coalesce(p_job.payload, '{}');
  p_job.run_at_given := coalesce(p_job.run_at_given, false);
  p_job.preserve_run_at := false;
  p_job.failures := 0;
  p_job.created_at := coalesce(p_job.created_at, clock_timestamp());
  p_job.droppable := coalesce(p_job.droppable, false);
  insert into staged_jobs select (p_job).* on conflict do nothing;
  if not found then
    return false;
  elsif p_job.partition_id is null then
    insert into keyless_jobs (staged_id, policy) values (p_job.id, p_partition.policy);
  else
    insert into arrivals overriding user value
    select a.* from _work_arrival(
      p_partition.policy, p_job.partition_id, p_partition.key, p_partition.shard, p_partition.version, p_partition.context,
      p_partition.weight, p_partition.limits, p_job.run_at, p_job.cost, p_job.due, p_job.priority, p_job.run_at, p_job.id) a;
  end if;
  perform _count_pending(p_partition.policy, 1);
  perform _notify(p_partition.policy);
  return true;
end
$$;

-- Parks a job that waits in Graphile Worker, and stages a row that refers to it. The payload goes along, because JavaScript may
-- have to work the key out (null).
create or replace function _stage_parked(
  p_policy policies, p_staged_id bigint, p_job record, p_task text, p_queue_name text, p_key text
) returns void language plpgsql as $$
declare
  v_definition jsonb := (p_policy).definition;
  v_staged staged_jobs;
  v_partition arrivals;
begin
  v_staged.id := p_staged_id;
  v_staged.partition_id := case when p_key is not null then _partition_id((p_policy).name, p_key) end;
  v_staged.task_identifier := p_task;
  v_staged.payload := p_job.payload;
  v_staged.queue_name := p_queue_name;
  v_staged.run_at := p_job.run_at;
  v_staged.max_attempts := p_job.max_attempts;
  v_staged.priority := p_job.priority;
  v_staged.cost := coalesce((v_definition ->> 'cost')::float8, 1);
  v_staged.due := p_job.run_at <= clock_timestamp();
  v_staged.parked_job_id := p_job.id;
  v_staged.parked_revision := p_job.revision;
  v_partition.policy := (p_policy).name;
  v_partition.key := p_key;
  v_partition.shard := v_definition ->> 'shard';
  v_partition.version := (p_policy).generation;
  v_partition.weight := (v_definition ->> 'weight')::float8;
  v_partition.limits := _constant_limits(v_definition);
  perform _stage_back(v_staged, v_partition);
  -- or somebody else has staged and parked it, and the caller has given its row a time since
  perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[s.parked_job_id], run_at => 'infinity', priority => 32767)
  from staged_jobs s where s.parked_job_id = p_job.id;
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
        select from superseded_jobs r where r.job_id = x.id and r.was_parked))
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
--
-- A job may have been parked since the caller looked (_before_change). Another verb that has locked its staged row by now waits
-- for Graphile Worker's row, which the caller has, and cleans up after itself. So this skips the row: else both would wait.
create or replace function _job_gone(p_job_ids bigint[]) returns void language plpgsql volatile as $$
declare
  v_ids bigint[] := array(
    select s.id from staged_jobs s
    where s.parked_job_id = any(p_job_ids) and not exists (
      select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = s.parked_job_id and j.attempts < j.max_attempts)
    order by s.id for update skip locked);
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
    perform _drop_staged(v_ids, null);
  end if;
  perform _leave_to_sweep(array(
    select u.id from unnest(p_job_ids) u (id)
    where not exists (select from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = u.id and j.locked_at is not null)));
end
$$;
