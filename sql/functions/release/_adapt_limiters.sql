-- Feeds the ends of released jobs to those of these limiters that adapt, in the order in which they ended. The caller has
-- locked the limiters and subtracted the jobs (`p_gone`) from their counts. A cap that changes is appended to the activity.
create or replace function _adapt_limiters(
  p_limiter_ids bigint[], p_gone in_flight_jobs[],
  p_jobs finished_job[], p_now timestamptz
) returns void language plpgsql volatile as $$   -- planned as _free_slots
declare
  -- mostly there are none, and then no limiter needs a look-up
  v_overridden boolean := exists (select from overrides);
begin
  with adaptive as materialized (
    select l.id, l.in_flight, case when v_overridden then _with_override(l, p_now) else l end as limiter
    from limiters l
    where l.id = any(p_limiter_ids) and l.current_max is not null
  ),
  gone as materialized (
    select a.id, g.job_id, g.admission, g.attempt, g.admitted_at, count(*) over (partition by a.id) as jobs
    from unnest(p_gone) g
    cross join unnest(g.limiter_ids) u (id)
    join adaptive a on a.id = u.id
  ),
  adapted as materialized (
    select a.id, _adaptive_fold(
      a.limiter, f.lag_ms, f.ok, g.admitted_at, a.in_flight + g.jobs::int, p_now order by f.ordinality) as state
    from gone g
    join adaptive a on a.id = g.id
    join unnest(p_jobs) f on f.job = g.job_id and f.ok is not null
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
      and not f.says_nothing
    group by a.id
  ),
  changed as (
    insert into activity (policy_id, at, caps)
    select (a.state).policy_id, p_now, array_agg(
      row((a.state).policy_id, (a.state).gate, (a.state).scope_key, p_now, (a.state).current_max)
        ::cap_change)
    from adapted a join adaptive b on b.id = a.id
    where (a.state).current_max is distinct from (b.limiter).current_max
    group by (a.state).policy_id
  )
  update limiters l set
    current_max = (a.state).current_max, lag_ewma_ms = (a.state).lag_ewma_ms, decreased_at = (a.state).decreased_at
  from adapted a where l.id = a.id and l.id = any(p_limiter_ids);
end
$$;
