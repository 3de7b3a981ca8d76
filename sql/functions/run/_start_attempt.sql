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
    admission = _admission_now(), attempt = p_attempt, pool_id = p_pool_id, started_at = clock_timestamp()
  from partitions q
  where f.job_id = p_job_id and q.id = f.partition_id
  returning q.key, f.staged_id, f.admission, (extract(epoch from v_before.admitted_at) * 1000000)::bigint,
    v_before.attempt is not null and v_before.pool_id is null, f.cancelled_by, f.cancel_reason, null;
end
$$;
