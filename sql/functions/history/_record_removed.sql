-- Writes to the history that staged jobs leave staging for good, without an admission, and counts them in their job groups.
-- Called before they are deleted, by whoever has locked them.
create or replace function _record_removed(
  p_staged_ids bigint[], p_outcome text, p_error text default null
) returns void language plpgsql volatile as $$
declare
  v_now timestamptz := clock_timestamp();
  v_pasts past[];
begin
  if exists (select from groups) then
    -- somebody may have had a parked job retried: then it goes on, and its own end counts
    perform _end_in_groups(array_agg(e.id), null, array_agg(e.outcome))
    from (
      select s.id, case when s.parked_job_id is null or _is_parked(
          s.id, s.parked_revision, j.run_at, j.revision, j.last_error, j.flags) then p_outcome
        else _outcome_of_staged(s.id, s.parked_job_id, s.parked_revision) end as outcome
      from staged_jobs s
      left join lateral (
        select x.* from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = s.parked_job_id limit 1) j on true
      where s.id = any(p_staged_ids)
    ) e where e.outcome is not null having count(*) > 0;
  end if;
  if not exists (select from policies p where p.history_kept_for is not null) then
    return;
  end if;
  v_pasts := _pasts_of(p_staged_ids);
  insert into history as h (
    staged_id, policy_id, partition, task_identifier, job_key, job_id, added_at, due_at, ended_at, outcome, error, waited,
    trace_id)
  select k.staged_id, k.policy_id, k.partition, k.task_identifier, k.job_key, k.job_id, k.added_at, k.due_at,
    v_now, p_outcome, p_error, coalesce(w.waited, '{}'), k.trace_id
  from unnest(v_pasts) k
  left join _waited(v_pasts, v_now) w on w.staged_id = k.staged_id
  on conflict (staged_id) do update set
    ended_at = excluded.ended_at, outcome = excluded.outcome, error = excluded.error,
    waited = _sum_seconds(h.waited, excluded.waited);
end
$$;
