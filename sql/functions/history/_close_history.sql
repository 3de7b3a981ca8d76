-- Ends the history of jobs that left both staging and their slots, and that no release has ended. An operator took the slot of
-- a job that ran, or unstaged its parked job. It skips locked rows.
--
-- It reads a page of those that have not ended: at most `p_max`, by policy and staged_id, behind the place that the caller
-- gives. Many may go on, such as retries that go past the gates. If it read the first ones again and again, it would never
-- come to the others.
--
--   closed      how many it has ended
--   policy_id, staged_id   the place behind which the next page begins; null: this was the last one
create or replace function _close_history(
  p_now timestamptz, p_policy_id int default 0, p_staged_id bigint default 0, p_max int default 10000,
  out closed int, out policy_id int, out staged_id bigint
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set lock_timeout = '5s'
as $$
#variable_conflict use_column
declare
  v_page bigint[] := array(
    select h.staged_id from policies p
    cross join lateral (
      select y.staged_id from history y
      where y.policy_id = p.id and y.ended_at is null and y.staged_id > case when p.id = p_policy_id then p_staged_id else 0 end
      order by y.ended_at, y.staged_id limit p_max
    ) h
    where p.history_kept_for is not null and p.id >= p_policy_id
    order by p.id, h.staged_id limit p_max);
begin
  if cardinality(v_page) = p_max then
    select h.policy_id, h.staged_id into policy_id, staged_id
    from history h where h.staged_id = v_page[p_max];
  end if;
  with lost as materialized (
    select h.staged_id, h.job_id from history h
    where h.staged_id = any(v_page) and h.ended_at is null and h.last_admitted_at < p_now - interval '1 minute'
      and not exists (
        select from in_flight_jobs f
        where f.job_id = h.job_id and f.staged_id = h.staged_id)
      and not exists (
        select from staged_jobs s where s.id = h.staged_id or s.parked_job_id = h.job_id)
    for update of h skip locked
  )
  update history h set ended_at = p_now,
    outcome = case when l.is_replaced then 'replaced' when l.has_failed then 'failed' else 'gone' end,
    attempts = l.attempts, error = case when l.has_failed and not l.is_replaced then l.error end
  from (
    select x.staged_id, f.job_id is not null as is_replaced, j.attempts >= j.max_attempts is true as has_failed, j.attempts,
      _first_line(j.last_error) as error,
      j.id is not null and (j.locked_at is not null or j.attempts < j.max_attempts) as goes_on
    from lost x
    left join in_flight_jobs f on f.job_id = x.job_id
    left join lateral (
      select y.id, y.attempts::int, y.max_attempts, y.last_error, y.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs y where y.id = x.job_id limit 1) j on true
  ) l
  where h.staged_id = l.staged_id and (l.is_replaced or not l.goes_on);
  get diagnostics closed = row_count;
end
$$;
