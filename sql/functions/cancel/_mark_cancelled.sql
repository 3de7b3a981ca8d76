-- Marks up to so many of the jobs in flight that a cancel is for, and notifies the worker pools, which tell those that run. A
-- release ends a marked job for good if it has failed, and a start that asks refuses to run it.
--
-- Jobs that have failed are marked as well, because the release of a failure may be under way, and stage the job again. Jobs
-- that the caller has ended (`p_ended`) get another mark as well: by it the next sweep frees their slots. All rows are
-- locked at once, in the order in which releases and passes lock them.
--
--   told      they run, and were not marked before
--   known     they run, and a cancel before has marked them
--   missed    a job was released, or started anew, before its row was locked: the caller looks again
--   is_full   there may be more than `p_max`
create or replace function _mark_cancelled(
  p_ids bigint[], p_policy text, p_partition text, p_by text, p_reason text, p_ended bigint[], p_max int,
  out told bigint[], out known bigint[], out missed boolean, out is_full boolean
) language plpgsql volatile as $$
declare
  v_page bigint[] := array(
    select c.job_id from _cancellable(p_ids, p_policy, p_partition) c
    where not c.cancelled and c.job_id <> all (p_ended) order by c.job_id limit p_max);
  v_locked bigint[];
  v_new bigint[];
begin
  is_full := cardinality(v_page) = p_max;
  v_page := v_page || p_ended;
  v_locked := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(v_page) order by f.job_id for update);
  select coalesce(array_agg(c.job_id) filter (where c.job_id = any(v_locked)), '{}'),
    coalesce(array_agg(c.job_id) filter (where c.job_id = any(v_locked) and not c.cancelled and c.runs), '{}'),
    coalesce(array_agg(c.job_id) filter (where c.cancelled and c.runs), '{}')
  into v_new, told, known
  from _cancellable(p_ids, p_policy, p_partition) c;
  missed := cardinality(v_new) < cardinality(v_page);
  update in_flight_jobs f set
    cancelled_at = coalesce(f.cancelled_at, clock_timestamp()),
    cancelled_by = case when f.cancelled_at is null then p_by else f.cancelled_by end,
    cancel_reason = case when f.cancelled_at is null then p_reason else f.cancel_reason end,
    missing_since = case when f.job_id = any(p_ended) then '-infinity' else f.missing_since end
  where f.job_id = any(v_new);
  perform pg_notify('dispatch_policy', json_build_object(
    'schema', :'DISPATCH_POLICY_SCHEMA', 'policy', p.name, 'cancelled', true)::text)
  from policies p
  where p.id in (
    select f.policy_id from in_flight_jobs f where f.job_id = any(told || known));
end
$$;
