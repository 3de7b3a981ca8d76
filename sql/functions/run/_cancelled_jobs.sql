-- The jobs in flight that operators have cancelled, by the owners of their slots. Worker pools tell those that they run.
create or replace function _cancelled_jobs()
returns table (job_id bigint, admission bigint, by text, reason text) language sql stable
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
  select f.job_id, f.admission, f.cancelled_by, f.cancel_reason
  from in_flight_jobs f where f.cancelled_at is not null;
$$;
