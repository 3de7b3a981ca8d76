-- Failed jobs are staged again, or end.

-- Parks failed jobs in Graphile Worker, once it has recorded their failure, and stages a row that refers to each, due at
-- its back-off time. Events, last_error and attempts stay Graphile Worker's own.
--
-- A parked job has run_at infinity and the last priority: at priority 0, parked jobs slowed every fetch of a later one.
-- Returns the jobs that the next flush must send again. These are jobs whose failure is about to be recorded, and jobs
-- that another transaction has locked.
create or replace function _retry(
  p_jobs finished_job[], p_now timestamptz
) returns bigint[] language plpgsql as $$
declare
  v_locked bigint[];
  v_parked bigint[];
  v_tried bigint[];
  v_revisions int[];
begin
  select coalesce(array_agg(x.id) filter (where x.is_locked), '{}'),
    coalesce(array_agg(x.id order by x.lot) filter (where x.parks), '{}'),
    coalesce(array_agg(x.revision order by x.lot) filter (where x.parks), '{}')
  into v_locked, v_tried, v_revisions
  from (
    select j.id, j.revision, j.locked_at is not null as is_locked, j.locked_at is null
      and (j.attempts < j.max_attempts
        -- a job that was removed meanwhile has used up its attempts, and lost its key
        or ((f.retry).refund and j.attempts = (f.retry).attempt
          and j.key is not distinct from (f.retry)."jobKey"))
      and (f.retry).after is not null and (f.retry).native is not true
      -- A job without a slot was swept, or retried past the gates: it could not be admitted again.
      and h.job_id is not null as parks,
      random() as lot
    from unnest(p_jobs) f
    cross join lateral (   -- one look at the index for each
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job limit 1) j
    left join lateral (
      select y.* from in_flight_jobs y where y.job_id = f.job limit 1) h on true
    where f.retries and _is_row_of((f.retry).revision, h.staged_id, j.revision, j.flags)
  ) x;
  v_parked := _park(v_tried, v_revisions);
  if v_parked <> '{}' then
    perform _stage_retries(p_jobs, v_parked, v_tried, v_revisions, p_now);
    -- A run that asked to come back later is no attempt. A flush may come again, and takes off no second one.
    perform from unnest(p_jobs) f
    cross join lateral (   -- one look at the index for each
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job limit 1) j
    cross join lateral :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array[j.id], attempts => j.attempts - 1)
    where (f.retry).refund and j.id = any(v_parked) and j.attempts = (f.retry).attempt;
  end if;
  return v_locked || array(select unnest(v_tried) except select unnest(v_parked)) || _end_or_postpone(p_jobs, p_now);
end
$$;

-- Ends failed jobs that are given up, with Graphile Worker's own message of the failure. That of a cancelled job also says
-- who cancelled it. Sets a retry that goes past the gates to a later time, by the policy's back-off. If its run was no
-- attempt, it gets the attempt back. So does a job without a slot, which was not parked. Returns the jobs that another
-- transaction has locked.
create or replace function _end_or_postpone(
  p_jobs finished_job[], p_now timestamptz
) returns bigint[] language plpgsql
set lock_timeout = '5ms' as $$
declare
  v_job record;
  v_left bigint[] := '{}';
begin
  for v_job in
    select j.id, j.revision, (f.retry)."giveUp" is true as gives_up, (f.retry).after as seconds,
      j.attempts - case when (f.retry).refund then 1 else 0 end as attempts,
      case when h.cancelled_at is null then j.last_error
        else _cancelled_error(h.cancelled_by, h.cancel_reason, j.last_error) end as error
    from unnest(p_jobs) f
    cross join lateral (   -- one look at the index for each
      select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = f.job limit 1) j
    left join lateral (
      select y.* from in_flight_jobs y where y.job_id = f.job limit 1) h on true
    where j.locked_at is null
      -- the next job of its key may have got the row, and may have failed as well
      and _is_row_of((f.retry).revision, h.staged_id, j.revision, j.flags)
      and j.attempts = (f.retry).attempt
      and (j.last_error is not null or h.cancelled_at is not null or h.lent_until is not null)
      and ((f.retry)."giveUp" or ((f.retry).native and j.attempts < j.max_attempts)
        or ((f.retry).refund and ((f.retry).native or h.job_id is null) and j.run_at < 'infinity'
          and j.key is not distinct from (f.retry)."jobKey"))
  loop
    begin
      continue when _lock_in_revision(array[v_job.id], array[v_job.revision]) = '{}';
      if v_job.gives_up then
        perform :GRAPHILE_WORKER_SCHEMA.permanently_fail_jobs(array[v_job.id], v_job.error);
      else
        perform :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(
          array[v_job.id], run_at => p_now + _wait(v_job.seconds), attempts => v_job.attempts);
      end if;
    exception when lock_not_available then
      v_left := v_left || v_job.id;
    end;
  end loop;
  return v_left;
end
$$;
