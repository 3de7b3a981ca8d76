-- _admit for a session that has not admitted any jobs yet. Its first pass plans its statements, which takes 50 ms and more,
-- between the time that throttles charge for and the commit. Its jobs would start so much late and the next ones in time: a
-- second saw more starts than the rate. So a pass that admits jobs is rolled back, and the answer is null: the caller does it
-- again, in a transaction of its own, with its plans.
--
-- What it costs: ids of Graphile Worker's jobs are left out, as by any transaction that is rolled back.
create or replace function _admit_cold(
  p_policy text, p_shard text, p_claim int, p_now timestamptz, p_bounded boolean,
  p_few boolean, p_routes boolean, out routed int, out claimed int, out served int, out admitted int, out denied jsonb, out quarantined int,
  out next_eligible_at timestamptz, out saturated text, out to_route boolean
) language plpgsql
set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
declare
  v_pass record;
begin
  begin
    v_pass := _admit(p_policy, p_shard, p_claim, p_now, p_bounded, false, p_routes);   -- for the plans of the large way
    raise exception using errcode = 'DPOUT';
  exception when sqlstate 'DPOUT' then null;
  end;
  v_pass := _admit(p_policy, p_shard, p_claim, p_now, p_bounded, p_few, p_routes);
  if v_pass.admitted > 0 then
    raise exception using errcode = 'DPOUT';
  end if;
  routed := v_pass.routed; claimed := v_pass.claimed; served := v_pass.served; admitted := v_pass.admitted; denied := v_pass.denied; quarantined := v_pass.quarantined;
  next_eligible_at := v_pass.next_eligible_at; saturated := v_pass.saturated; to_route := v_pass.to_route;
exception when sqlstate 'DPOUT' then null;
end
$$;
