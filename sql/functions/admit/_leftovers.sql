-- What a pass leaves of each claimed partition: its share, its probe, and its next job.
create or replace function _leftovers(
  p_policy policies, p_claimed claimed[],
  p_candidates candidate[],
  p_admissions admission[],
  p_admitted partition_admitted[], p_now timestamptz
) returns leftover[] language plpgsql stable as $$   -- planned as _charge
declare
  v_were_staged boolean := (p_candidates[1]).ct is not null;   -- a job admitted at its start was not
  v_has_gone boolean := exists (select from unnest(p_admissions) a where not a.admitted);
begin
  return array(
    select row(
        p.id, p.limiter_ids, p.weight, p.due_at, p.waiting_since,
        _decayed(p.decayed_admits, p.decayed_at, (p_policy).half_life, p_now)
          + coalesce(n.admitted, 0) * coalesce(_work_of(p_policy, p.mean_work), 1),
        coalesce(n.admitted, 0),
        case when p.probing then coalesce(p.probe_job_id, n.first_job_id) end,
        h.staged_id, h.priority, h.run_at, h.cost, h.chosen,
        case when h.staged_id is null then (
          select min(coalesce(s.retry_at, s.run_at)) from staged_jobs s
          where s.partition_id = p.id and not s.due
        ) end,
        case when v_were_staged then coalesce(n.admitted, 0) + coalesce(g.jobs, 0) else 0 end)::leftover
    from unnest(p_claimed) p
    left join unnest(p_admitted) n on n.partition_id = p.id
    left join (
      select distinct on (c.partition_id) c.* from unnest(p_candidates) c
      where (c.staged_id in (select a.staged_id from unnest(p_admissions) a)) is not true
      order by c.partition_id, c.pos
    ) h on h.partition_id = p.id
    -- those that left staging without an effect
    left join (
      select c.partition_id, count(*)::int as jobs from unnest(p_candidates) c
      where v_has_gone and c.staged_id in (select a.staged_id from unnest(p_admissions) a where not a.admitted)
      group by c.partition_id
    ) g on g.partition_id = p.id);
end
$$;
