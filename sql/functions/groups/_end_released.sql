-- Counts in their groups those of these released jobs that have ended for good. Retries of failed jobs are staged by now. A job
-- that goes on is remembered by Graphile Worker's id, because it may go on without a slot.
create or replace function _end_released(
  p_gone in_flight_jobs[], p_jobs finished_job[]
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _free_slots
declare
  v_staged_ids bigint[] := array(
    select m.staged_id from group_jobs m
    where m.staged_id = any(array(select g.staged_id from unnest(p_gone) g)));
  v_job_ids bigint[] := '{}';
  v_end record;
begin
  if exists (select from group_jobs m where m.job_id is not null) then   -- mostly none has
    v_job_ids := array(
      select m.job_id from group_jobs m
      where m.job_id = any(array(select g.job_id from unnest(p_gone) g)));
  end if;
  if v_staged_ids = '{}' and v_job_ids = '{}' then
    return;
  end if;
  with ended as materialized (
    select g.staged_id, g.job_id, f.ordinality, _outcome(
      f.ok, (select true from staged_jobs s where s.parked_job_id = g.job_id limit 1),
      j.attempts, j.max_attempts, j.locked_at is not null) as outcome
    from unnest(p_gone) g
    join unnest(p_jobs) f on f.job = g.job_id
      and _is_end_of(f.admission, f.attempt, g.admission, g.attempt)
    left join lateral (   -- one look at the index for each
      select x.attempts, x.max_attempts, x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x
      where x.id = g.job_id and _is_row_of(g.revision, g.staged_id, x.revision, x.flags) limit 1
    ) j on true
    where (g.staged_id in (select unnest(v_staged_ids))) is true or (g.job_id in (select unnest(v_job_ids))) is true
  ),
  released as materialized (   -- a job may have several ends
    select distinct on (e.job_id) e.* from ended e order by e.job_id, e.outcome is null, e.ordinality desc
  )
  select coalesce(array_agg(r.staged_id) filter (where r.outcome is not null), '{}') as staged_ids,
    array_agg(r.job_id) filter (where r.outcome is not null) as job_ids,
    array_agg(r.outcome) filter (where r.outcome is not null) as outcomes,
    array_agg(r.staged_id) filter (where r.outcome is null) as going_staged_ids,
    array_agg(r.job_id) filter (where r.outcome is null) as going_job_ids
  into v_end from released r;
  update group_jobs m set job_id = e.job_id
  from unnest(v_end.going_staged_ids, v_end.going_job_ids) e (staged_id, job_id)
  where m.staged_id = any(v_end.going_staged_ids) and m.staged_id = e.staged_id and m.job_id is distinct from e.job_id;
  if v_end.staged_ids <> '{}' then
    perform _end_in_groups(v_end.staged_ids, v_end.job_ids, v_end.outcomes);
  end if;
end
$$;
