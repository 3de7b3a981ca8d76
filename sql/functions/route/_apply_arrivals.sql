-- Puts consumed arrivals into effect: partitions first, then limiters ascending, the order that all keep. The
-- caller has the router's turn, and has locked those partitions that exist.
create or replace function :DISPATCH_POLICY_SCHEMA._apply_arrivals(
  p_policy :DISPATCH_POLICY_SCHEMA._private_policies, p_arrivals :DISPATCH_POLICY_SCHEMA._private_arrivals[],
  p_known :DISPATCH_POLICY_SCHEMA._private_known[], p_now timestamptz
) returns void language plpgsql as $$
declare
  v_made record;
  v_contexts jsonb := :DISPATCH_POLICY_SCHEMA._contexts_before(p_policy, p_arrivals);
  v_mixed jsonb := case when (p_policy).keyed_scopes
    then :DISPATCH_POLICY_SCHEMA._mixed_keys(p_policy, p_arrivals, p_known) end;
  v_staged int := (select sum(a.jobs) from unnest(p_arrivals) a where a.jobs > 0);
begin
  v_made := :DISPATCH_POLICY_SCHEMA._route_partitions(p_policy, p_arrivals, p_known, p_now);
  if v_mixed is not null then
    update :DISPATCH_POLICY_SCHEMA._private_partitions q set
      mixed_keys = v_mixed -> q.id::text, mixed_at = clock_timestamp(), mixed_told = coalesce(q.mixed_told, false)
    where q.id = any(array(select k::uuid from jsonb_object_keys(v_mixed) k))
      and (q.mixed_at > clock_timestamp() - interval '1 hour') is not true;   -- in a busy partition they change all the time
  end if;
  perform :DISPATCH_POLICY_SCHEMA._route_limits(
    p_policy, p_arrivals, p_known, v_made.made_gates, v_made.made_keys, v_contexts, p_now);
  if exists (select from unnest(p_arrivals) a where a.outcome is not null) then
    perform :DISPATCH_POLICY_SCHEMA._route_outcomes(p_policy, p_arrivals, p_now);
    perform :DISPATCH_POLICY_SCHEMA._route_work(p_policy, p_arrivals, p_now);
  end if;
  if v_staged > 0 then
    insert into :DISPATCH_POLICY_SCHEMA._private_activity (policy_id, at, staged, load)
    values ((p_policy).id, p_now, v_staged, case when (p_policy).load_kept_for is null then '{}'
      else :DISPATCH_POLICY_SCHEMA._load_of_arrivals((p_policy).id, p_arrivals, p_now) end);
  end if;
end
$$;
