-- Ends the history of jobs that left both staging and their slots, and that no release has ended: at most 10,000 a call. An
-- operator took the slot of a job that ran, or handed its parked job back. Returns how many. It skips locked rows.
create or replace function :DISPATCH_POLICY_SCHEMA._close_history(p_now timestamptz) returns int language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '5s'
as $$
declare
  v_closed int;
begin
  with lost as materialized (
    select h.staged_id, h.job_id
    from :DISPATCH_POLICY_SCHEMA._private_policies p
    join :DISPATCH_POLICY_SCHEMA._private_history h on h.policy_id = p.id and h.ended_at is null
    where p.history_kept_for is not null and h.last_admitted_at < p_now - interval '1 minute'
      and not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f
        where f.job_id = h.job_id and f.staged_id = h.staged_id)
      and not exists (
        select from :DISPATCH_POLICY_SCHEMA._private_staged_jobs s where s.id = h.staged_id or s.parked_job_id = h.job_id)
    limit 10000 for update of h skip locked
  )
  update :DISPATCH_POLICY_SCHEMA._private_history h set ended_at = p_now,
    outcome = case when l.is_replaced then 'replaced' when l.has_failed then 'failed' else 'gone' end,
    attempts = l.attempts, error = case when l.has_failed and not l.is_replaced then l.error end
  from (
    select x.staged_id, f.job_id is not null as is_replaced, j.attempts >= j.max_attempts is true as has_failed, j.attempts,
      :DISPATCH_POLICY_SCHEMA._first_line(j.last_error) as error,
      j.id is not null and (j.locked_at is not null or j.attempts < j.max_attempts) as goes_on
    from lost x
    left join :DISPATCH_POLICY_SCHEMA._private_in_flight_jobs f on f.job_id = x.job_id
    left join lateral (
      select y.id, y.attempts::int, y.max_attempts, y.last_error, y.locked_at
      from :GRAPHILE_WORKER_SCHEMA.jobs y where y.id = x.job_id limit 1) j on true
  ) l
  where h.staged_id = l.staged_id and (l.is_replaced or not l.goes_on);
  get diagnostics v_closed = row_count;
  return v_closed;
end
$$;
