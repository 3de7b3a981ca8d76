-- One routing and one admission pass from SQL. Gates alone decide: it does not keep to the ahead bound. Without a policy it
-- ticks every policy in one transaction. (A process that has the package uses one for each step of each policy.)
--
--   select * from dispatch_policy.tick('fetch_endpoint');
create or replace function :DISPATCH_POLICY_SCHEMA.tick(
  policy text default null, shard text default null, now timestamptz default null
) returns table (claimed int, admitted int, denied jsonb, duration_ms float8, next_eligible_at timestamptz, dropped int)
language plpgsql
security definer set search_path = pg_catalog, :DISPATCH_POLICY_INTERNAL, pg_temp as $$
#variable_conflict use_column
declare
  v_started timestamptz := clock_timestamp();
  v_policy text;
  v_pass record;
begin
  perform _check_now('tick', tick.now);
  claimed := 0; admitted := 0; denied := '{}'; dropped := 0;
  for v_policy in
    select p.name from policies p
    where tick.policy is null or p.name = tick.policy order by p.id
  loop
    perform _route(v_policy, tick.now, 10000);
    select * into v_pass from _admit(v_policy, tick.shard, 50, tick.now, false);
    claimed := claimed + v_pass.claimed;
    admitted := admitted + v_pass.admitted;
    denied := _sum_counts(denied, v_pass.denied);
    dropped := dropped + (select coalesce(sum(d.jobs), 0) from _consume_drops(v_policy) d);
    next_eligible_at := least(next_eligible_at, v_pass.next_eligible_at);
  end loop;
  if not found and tick.policy is not null then
    perform _unknown_policy(tick.policy);
  end if;
  duration_ms := extract(epoch from clock_timestamp() - v_started) * 1000;
  return next;
end
$$;
revoke execute on function :DISPATCH_POLICY_SCHEMA.tick from public;
