-- Ends in their groups the jobs whose end no release has seen: Graphile Worker ran them past their policy, or an operator
-- ended them there. Then it adds up what others have left, and tries callbacks again that could not be added.
--
-- It reads a page of at most `p_max` jobs, by staged_id, behind the place that the caller gives.
--
--   closed      how many jobs it has ended
--   staged_id   the place behind which the next page begins; null: this was the last one
create or replace function _close_groups(
  p_after bigint default 0, p_max int default 10000, out closed int, out staged_id bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_page bigint[] := array(
    select m.staged_id from group_jobs m
    where m.staged_id > p_after order by m.staged_id limit p_max);
  v_ids bigint[];
  v_outcomes text[];
begin
  if cardinality(v_page) = p_max then
    staged_id := v_page[p_max];
  end if;
  select coalesce(array_agg(l.staged_id), '{}'), array_agg(l.outcome) into v_ids, v_outcomes
  from (
    select m.staged_id, _outcome(
      null, false, j.attempts, j.max_attempts, j.locked_at is not null) as outcome
    from group_jobs m
    left join lateral (   -- one look at the index for each
      select x.attempts, x.max_attempts, x.locked_at from :GRAPHILE_WORKER_SCHEMA.jobs x where x.id = m.job_id limit 1) j on true
    where m.staged_id = any(v_page)
      and not exists (
        select from staged_jobs s where s.id = m.staged_id or s.parked_job_id = m.job_id)
      and m.staged_id not in (select f.staged_id from in_flight_jobs f)
      and (m.job_id in (select f.job_id from in_flight_jobs f)) is not true
  ) l where l.outcome is not null;
  closed := cardinality(v_ids);
  if closed > 0 then
    perform _end_in_groups(v_ids, null, v_outcomes);
  end if;
  if staged_id is null then
    perform _fold_groups(array(
      select g.id from groups g where g.jobs_left = 0
      union select e.group_id from group_ends e));
  end if;
end
$$;
