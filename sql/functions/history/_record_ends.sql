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
