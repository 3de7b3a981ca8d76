-- Jobs leave staging without an admission, or wait there for another time.

-- Deletes staged jobs, most often because other jobs replace them. The caller has locked them. `p_outcome` is told to those who
-- watch; null: the caller tells what becomes of them.
--
-- A job without a partition has a row in keyless_jobs. _keyless_jobs locks such rows while JavaScript works the keys out.
-- A caller of this function may have limiters locked and must not wait, so a locked row stays: _keyless_jobs deletes it.
create or replace function _drop_staged(p_ids bigint[], p_outcome text default 'replaced', p_error text default null)
returns void language plpgsql as $$
declare
  v_tasks text[];
  v_partition_ids uuid[];
begin
  if p_ids = '{}' then
    return;
  end if;
  if p_outcome is not null then
    perform _tell_removed(p_ids, p_outcome, p_error);
  end if;
  with dropped as (
    delete from staged_jobs s where s.id = any(p_ids)
    returning s.task_identifier, s.partition_id
  ),
  keyless as (
    delete from keyless_jobs k where k.staged_id = any(array(
      select x.staged_id from keyless_jobs x
      where x.staged_id = any(p_ids) for update skip locked))
  )
  select array_agg(d.task_identifier), array_agg(d.partition_id) into v_tasks, v_partition_ids from dropped d;
  perform _count_removed(v_tasks, v_partition_ids);
end
$$;

-- Drops staged jobs outside of a pass, and records them as drops for this reason. The caller has locked them.
create or replace function _drop_as(p_reason text, p_ids bigint[]) returns void language plpgsql as $$
begin
  if p_ids = '{}' then
    return;
  end if;
  perform _tell_dropped(p.name, s.partition_id, q.key, p_reason, count(*))
  from staged_jobs s
  left join partitions q on q.id = s.partition_id
  left join policy_tasks t on q.id is null and t.task_identifier = s.task_identifier
  join policies p on p.id = coalesce(q.policy_id, t.policy_id)
  where s.id = any(p_ids) group by p.name, s.partition_id, q.key;
  perform _drop_staged(p_ids, 'dropped', p_reason);
end
$$;

-- Drops the staged job whose key a job of a task without a policy gets, as Graphile Worker would. Otherwise the older,
-- staged job would replace the newer one at its admission.
create or replace function _drop_replaced(p_job_keys text[]) returns void language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
begin
  -- A session that has one of these rows locked may give it another key. The lock waits for that, and then compares again.
  perform _drop_staged(array(
    select s.id from staged_jobs s where s.job_key = any(p_job_keys)
    order by s.job_key for update));   -- as staging takes them
end
$$;
revoke execute on function _drop_replaced from public;

-- Removes staged jobs, which the caller has locked. A parked job waits inside Graphile Worker, which keeps it as failed for good:
-- with its last error, or with who cancelled it and why.
create or replace function _remove_staged(p_ids bigint[], p_cancelled_by text, p_reason text) returns void
language plpgsql volatile as $$
declare
  v_keys text[] := array(
    select s.job_key from staged_jobs s
    where s.id = any(p_ids) and s.job_key is not null);
  v_parked_ids bigint[];
  v_revisions int[];
begin
  select coalesce(array_agg(j.id), '{}'), array_agg(j.revision) into v_parked_ids, v_revisions
  from staged_jobs s
  join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = s.parked_job_id
  where s.parked_job_id is not null and s.id = any(p_ids)
    and _is_parked(
      s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags);
  if v_parked_ids <> '{}' then
    v_parked_ids := _lock_in_revision(v_parked_ids, v_revisions);
    perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[j.id], case when p_cancelled_by is null then j.last_error
      else _cancelled_error(p_cancelled_by, p_reason, j.last_error) end)
    from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = any(v_parked_ids);
  end if;
  perform _drop_staged(p_ids, 'removed');
  perform _give_up_replaced(v_keys);
end
$$;

-- Called before a verb changes or removes staged or parked jobs, so that routing looks at their partitions again. It locks
-- the jobs, so that nobody moves them to another partition meanwhile. A parked job is found by its staged id or by its own.
create or replace function _before_change(p_job_ids bigint[]) returns void
language plpgsql volatile as $$
begin
  perform _head_changed(array(
    select s.partition_id from staged_jobs s
    where s.id = any(p_job_ids) or s.parked_job_id = any(p_job_ids) order by s.job_key, s.id for no key update));
end
$$;

-- Drops the jobs of claimed partitions that have expired, due or not. These are some 1,000 in all, and as many of each
-- partition that has such jobs. Returns the partitions that the pass goes on with. The caller has locked them.
--
-- A partition that may have more of them is left out. It stays eligible, and the next pass goes on with it. Otherwise a pass
-- after an outage would delete a whole backlog in one transaction, with limiters locked, or admit what is late.
--
-- It skips rows that another session has locked. Such a row may be free when the pass admits it, so _add_admitted looks at
-- the time again.
create or replace function _expire(p_policy text, p_partition_ids uuid[], p_now timestamptz)
returns uuid[] language plpgsql volatile as $$
declare
  v_expiring uuid[];
  v_most int;
  v_ids bigint[];
  v_left_out uuid[];
begin
  -- usually there are none, and one look at the index shows that
  if not exists (
    select from staged_jobs s
    where s.partition_id = any(p_partition_ids) and s.expires_at <= p_now) then
    return p_partition_ids;
  end if;
  v_expiring := array(
    select u.id from unnest(p_partition_ids) u (id)
    cross join lateral (
      select from staged_jobs s
      where s.partition_id = u.id and s.expires_at <= p_now limit 1) x);
  v_most := ceil(1000.0 / greatest(cardinality(v_expiring), 1));
  v_ids := array(
    select x.id from unnest(v_expiring) u (id)
    cross join lateral (
      select s.id from staged_jobs s
      where s.partition_id = u.id and s.expires_at <= p_now
      order by s.expires_at limit v_most
      for update skip locked
    ) x);
  -- one that is left out, and that a limiter has called, is looked at again
  v_left_out := _drop_in_pass(p_policy, 'expired', v_ids, v_most);
  return array(select u.id from unnest(p_partition_ids) u (id) where u.id <> all (v_left_out));
end
$$;

-- Drops these jobs of partitions that the pass has locked, and records them as drops for this reason. Returns the partitions
-- that lost `p_most` of them.
create or replace function _drop_in_pass(p_policy text, p_reason text, p_ids bigint[], p_most int) returns uuid[]
language plpgsql as $$
declare
  v_full uuid[];
begin
  perform _tell_removed(p_ids, 'dropped', p_reason);
  with dropped as (
    delete from staged_jobs s where s.id = any(p_ids) returning s.partition_id
  ),
  tally as materialized (
    select d.partition_id as id, count(*)::int as jobs from dropped d group by d.partition_id
  ),
  told as materialized (
    select _tell_dropped(p_policy, t.id, null, p_reason, t.jobs) from tally t
  ),
  counted as materialized (
    select _lost_staged(array_agg(t.id), array_agg(t.jobs), p_most) from tally t
  )
  select coalesce(array_agg(t.id) filter (where t.jobs >= p_most), '{}') into v_full from tally t
  where (select count(*) from told) + (select count(*) from counted) >= 0;
  perform _count_pending(p_policy, -cardinality(p_ids));
  return v_full;
end
$$;

-- Drops or delays due jobs of partitions whose own gates deny them, by the verdict of the pass that has these partitions locked
-- (`whenBusy`). A partition that only waits for a worker, for its turn or for the end of a stop is none of them, and neither is a
-- parked job. Returns whether there were any.
--
-- They are some 1,000 in all, and as many of each such partition, first those that would go next. The danger: a pass that
-- writes a whole backlog has limiters locked meanwhile. The cure: the partitions stay eligible, and the next passes go on with
-- the rest. They also find the jobs that others have locked.
--
-- A delayed job is due again later, and keeps its id, its priority and its expiry. The danger: jobs that were delayed together
-- would be due together, and a cap of 1 would let one of them go each time. The cure: the first is due after the delay, and the
-- others, in their order, evenly until twice the delay. They are due in steps of a quarter of a second, so that many jobs need
-- few passes. The next pass finds when the first is due.
create or replace function _skip_or_delay(
  p_policy policies, p_partition_ids uuid[], p_now timestamptz
) returns boolean language plpgsql as $$
declare
  v_denied uuid[] := array(
    select q.id from partitions q
    where q.id = any(p_partition_ids) and _reason_kind(q.denied_reason) in ('tokens', 'zero', 'cap'));
  v_ids bigint[] := array(
    select x.id from unnest(v_denied) u (id)
    cross join lateral (
      select s.id from staged_jobs s
      where s.partition_id = u.id and s.due and s.parked_job_id is null
      order by s.priority, s.run_at, s.id limit ceil(1000.0 / greatest(cardinality(v_denied), 1))
      for update skip locked
    ) x);
  v_delay float8 := (p_policy).busy_delay;
  v_none text;
begin
  if v_ids = '{}' then
    return false;
  elsif (p_policy).when_busy = 'skip' then
    perform _drop_in_pass((p_policy).name, 'busy', v_ids, 0);
    return true;
  end if;
  with placed as (
    select s.id, row_number() over (order by s.priority, s.run_at, s.id) - 1 as place
    from staged_jobs s where s.id = any(v_ids)
  ),
  delayed as (
    update staged_jobs s set due = false,
      run_at = p_now + make_interval(secs => v_delay + floor(p.place * v_delay * 4 / cardinality(v_ids)) / 4)
    from placed p where s.id = p.id returning s.partition_id
  ),
  counted as (
    insert into activity (policy_id, at, delayed)
    values ((p_policy).id, p_now, cardinality(v_ids))
  )
  select _lost_staged(array_agg(d.partition_id), array_agg(0), 0) into v_none from (select distinct d.partition_id from delayed d) d;
  return true;
end
$$;

-- Quarantines a job, still staged. If it waits for another transaction, all of `p_among` are quarantined that wait for the
-- same. Returns these, also those that another session has locked: they stay due. Under strict order the others of their
-- partitions wait for them.
create or replace function _quarantine(
  p_staged_id bigint, p_among bigint[], p_error text, p_locks boolean, p_now timestamptz
) returns bigint[] language sql volatile as $$
  -- It leaves jobs that another session has locked: it runs while an error is handled, and must not fail.
  with same as materialized (
    select s.id from staged_jobs s
    join staged_jobs x on x.id = p_staged_id
    where s.id = any(p_among) and (s.id = x.id
      or (p_locks and x.job_key is null and x.parked_job_id is null and case when x.queue_name is null
        then s.task_identifier = x.task_identifier else s.queue_name = x.queue_name end))
  ),
  quarantined as (
    update staged_jobs s set
      due = false, failures = least(s.failures + 1, 30000), error = p_error,
      sort_at = case when exists (
          select from partitions q
          join policies p on p.id = q.policy_id
          where q.id = s.partition_id and p.job_order = 'strict') then '-infinity' else s.sort_at end,
      retry_at = p_now + case when p_locks
        then least(interval '50 milliseconds' * power(2, least(s.failures, 10)), interval '1 second')
        else _quarantine_for(s.failures) end
    where s.id = any(array(
      select y.id from staged_jobs y
      where y.id in (select m.id from same m) for update skip locked))
  )
  select array(select m.id from same m);
$$;

-- For how long a job is quarantined that was refused so many times.
create or replace function _quarantine_for(p_failures int) returns interval
language sql immutable as $$
  select make_interval(secs => least(power(2, least(p_failures, 12)), 3600));
$$;

-- Changes staged jobs, by their ids or those of their parked rows. Null: that stays as it is.
create or replace function _reschedule_staged(p_ids bigint[], p_run_at timestamptz, p_priority smallint, p_max_attempts smallint)
returns setof staged_jobs language plpgsql volatile as $$
begin
  return query
  update staged_jobs s set
    run_at = case when p_run_at is null then s.run_at else _run_at(p_run_at) end, run_at_given = s.run_at_given or p_run_at is not null,
    due = coalesce(p_run_at, s.run_at) <= clock_timestamp(), priority = coalesce(p_priority, s.priority),
    max_attempts = coalesce(p_max_attempts, s.max_attempts), retry_at = null, waits_for = null
  where s.id = any(p_ids) or s.parked_job_id = any(p_ids) returning s.*;
end
$$;
