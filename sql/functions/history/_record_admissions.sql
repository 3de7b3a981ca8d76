-- Writes to the history which jobs were admitted, and how long they had waited for what. A job that left staging without an
-- admission was replaced, or is gone if it was parked and its row is not there any more. Replaced was also the job whose row
-- in Graphile Worker a newer one of its key has got.
create or replace function _record_admissions(
  p_pasts past[], p_admissions admission[], p_now timestamptz
) returns void language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$   -- as _charge
begin
  if exists (select from unnest(p_admissions) a where a.counted) then
    update history h set ended_at = p_now, outcome = 'replaced'
    from unnest(p_admissions) a
    where a.counted and a.job_id = h.job_id and a.staged_id <> h.staged_id and h.ended_at is null
      and h.job_id = any(array(select b.job_id from unnest(p_admissions) b where b.counted));
  end if;
  insert into history as h (
    staged_id, policy_id, partition, task_identifier, job_key, job_id, added_at, due_at, admitted_at, last_admitted_at,
    ended_at, outcome, waited, trace_id)
  select k.staged_id, k.policy_id, k.partition, k.task_identifier, k.job_key, coalesce(a.job_id, k.job_id), k.added_at, k.due_at,
    x.admitted_at, x.admitted_at, case when not a.admitted then p_now end, x.outcome, coalesce(w.waited, '{}'), k.trace_id
  from unnest(p_admissions) a
  join unnest(p_pasts) k on k.staged_id = a.staged_id
  left join _waited(p_pasts, p_now) w on w.staged_id = k.staged_id
  cross join lateral (
    select case when a.admitted then p_now end as admitted_at,
      case when a.admitted then null
        when k.job_id is not null
          and (select true from :GRAPHILE_WORKER_SCHEMA.jobs j where j.id = k.job_id limit 1) is null then 'gone'
        else 'replaced' end as outcome
  ) x
  order by k.staged_id
  on conflict (staged_id) do update set
    policy_id = excluded.policy_id, partition = excluded.partition, job_id = excluded.job_id,
    admitted_at = coalesce(h.admitted_at, excluded.admitted_at),
    last_admitted_at = coalesce(excluded.last_admitted_at, h.last_admitted_at),
    -- one that failed for good may have been brought back
    started_at = null, ended_at = excluded.ended_at, outcome = excluded.outcome, error = null,
    waited = _sum_seconds(h.waited, excluded.waited);
end
$$;
