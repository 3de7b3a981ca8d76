-- Drops the staged job whose key a job of a task without a policy gets, as Graphile Worker would. Otherwise the older,
-- staged job would replace the newer one at its admission.
create or replace function _drop_replaced(p_job_keys text[]) returns void language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  -- A session that has one of these rows locked may give it another key. The lock waits for that, and then compares again.
  v_ids bigint[] := array(
    select s.id from staged_jobs s where s.job_key = any(p_job_keys)
    order by s.job_key for update);   -- as staging takes them
begin
  perform _drop_staged(v_ids) where v_ids <> '{}';
end
$$;
revoke execute on function _drop_replaced from public;
