-- The figures of one policy, as metrics has them. With many policies it reads a fraction of what metrics reads.
--
--   select * from dispatch_policy.policy_metrics('fetch_endpoint') where name = 'admissible_jobs';
create or replace function :DISPATCH_POLICY_SCHEMA.policy_metrics(policy text)
returns table (name text, labels jsonb, value float8) language plpgsql stable
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp
set jit = off as $$
#variable_conflict use_column
declare
  v_now timestamptz := clock_timestamp();
  v_policy_id int := (_policy(policy_metrics.policy)).id;
begin
  return query select * from _policy_metrics(v_now, v_policy_id);
  return query select * from _partition_metrics(v_now, v_policy_id);
  return query select * from _limiter_metrics(v_now, v_policy_id);
  return query select * from _time_metrics(v_now, v_policy_id);
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.policy_metrics from public;
