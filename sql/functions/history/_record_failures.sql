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
