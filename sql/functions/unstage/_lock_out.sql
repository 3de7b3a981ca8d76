-- Finds out, under locks, whether the schema may go: nothing waits in it any more, and no worker pool lives. A producer may
-- stage between the last look and the drop, and a pool may start. So it locks both tables first, and looks again under the
-- locks. Whoever comes later waits until the caller has dropped the schema, and then gets an error.
--
-- It waits for the locks for less than PostgreSQL takes to look for a deadlock, so that nobody who ticks is ended for it. If
-- it does not get them, it raises lock_not_available, and is tried again.
--
-- Jobs that are locked by worker pools that were killed are unlocked: nobody would do so for four hours.
--
-- The danger: a job in flight that has not started keeps its flag and its times. A later installation has no slot for it,
-- and its workers would believe it as an admitted first attempt. With a cap of 2, four ran at once. The cure: such a job
-- gets a later updated_at, so its start asks.
--
-- The originals of copies that were copied are completed, because they would run again. So are the jobs of the
-- crontab's task. Jobs that run are locked, and stay.
--
--   unstaged, parked, replaced, refused, expired   see _unstage_what_passes: what was staged meanwhile
--   unlocked    jobs of worker pools that were killed
--   tick_jobs   jobs of the crontab's task that were removed
--   is_empty    the caller may drop the schema
create or replace function _lock_out(
  p_force boolean, p_count int, out unstaged int, out parked int, out replaced int, out refused int,
  out expired int, out unlocked int, out tick_jobs int, out is_empty boolean
) language plpgsql
set lock_timeout = '900ms' as $$
declare
  v_dead text[];
begin
  unlocked := 0;
  tick_jobs := 0;
  lock table staged_jobs, workers,
    copied_jobs in access exclusive mode;
  if not p_force then
    perform _refuse_live_workers('uninstall', null);
    perform _refuse_open_groups('uninstall');
  end if;
  select b.* into unstaged, parked, replaced, refused, expired
  from _unstage_what_passes(
    _lock_staged(null, p_count)) b;
  perform _sweep_replaced();
  is_empty := not exists (select from staged_jobs)
    -- somebody has the row of a parked job locked that was replaced
    and not exists (
      select from replaced_jobs r
      join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = r.job_id
      where j.run_at = 'infinity' and j.attempts < j.max_attempts
        and _is_ours(j.flags, j.created_at, j.key));
  if not is_empty then
    return;
  end if;
  v_dead := array(
    select w.pool_id from workers w where w.stale_at <= clock_timestamp());
  unlocked := (select count(*) from :GRAPHILE_WORKER_SCHEMA.jobs j where j.locked_by = any(v_dead));
  perform :GRAPHILE_WORKER_SCHEMA.force_unlock_workers(v_dead);
  perform pg_notify('jobs:insert', json_build_object('r', random(), 'count', unlocked)::text)   -- unlocking does not
  where unlocked > 0;
  perform from :GRAPHILE_WORKER_SCHEMA.reschedule_jobs(array(   -- without a change, but for updated_at
    select j.id from in_flight_jobs f
    join :GRAPHILE_WORKER_SCHEMA.jobs j on j.id = f.job_id and j.locked_at is null));
  perform _complete_copied(null);
  tick_jobs := (
    select count(*) from :GRAPHILE_WORKER_SCHEMA.complete_jobs(array(
      select j.id from :GRAPHILE_WORKER_SCHEMA.jobs j where j.task_identifier = _tick_task())));
end
$$;
