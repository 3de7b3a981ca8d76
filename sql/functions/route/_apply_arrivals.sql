-- Puts consumed arrivals into effect: partitions first, then limiters ascending, the order that all keep. The
-- caller has the router's turn, and has locked those partitions that exist.
create or replace function _apply_arrivals(
  p_policy policies, p_arrivals arrivals[],
  p_known known[], p_now timestamptz
) returns void language plpgsql as $$
declare
  v_made record;
  v_contexts jsonb := _contexts_before(p_policy, p_arrivals);
  v_mixed jsonb := case when (p_policy).keyed_scopes
    then _mixed_keys(p_policy, p_arrivals, p_known) end;
  v_staged int := (select sum(a.jobs) from unnest(p_arrivals) a where a.jobs > 0);
begin
  v_made := _route_partitions(p_policy, p_arrivals, p_known, p_now);
  if v_mixed is not null then
    update partitions q set
      mixed_keys = v_mixed -> q.id::text, mixed_at = clock_timestamp(), mixed_told = coalesce(q.mixed_told, false)
    where q.id = any(array(select k::uuid from jsonb_object_keys(v_mixed) k))
      and (q.mixed_at > clock_timestamp() - interval '1 hour') is not true;   -- in a busy partition they change all the time
  end if;
  perform _route_limits(
    p_policy, p_arrivals, p_known, v_made.made_gates, v_made.made_keys, v_contexts, p_now);
  if exists (select from unnest(p_arrivals) a where a.outcome is not null) then
    perform _route_outcomes(p_policy, p_arrivals, p_now);
    perform _route_work(p_policy, p_arrivals, p_now);
  end if;
  if v_staged > 0 then
    insert into activity (policy_id, at, staged, load)
    values ((p_policy).id, p_now, v_staged, case when (p_policy).load_kept_for is null then '{}'
      else _load_of_arrivals((p_policy).id, p_arrivals, p_now) end);
  end if;
end
$$;
