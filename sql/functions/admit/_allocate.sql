-- Chooses the due jobs of the claimed partitions that go now. It returns one job more of each partition than may go,
-- because that one tells whether the partition drains.
--
-- A first ranking reads only as many jobs of each partition as the fairest share of the broad limiters' room could give
-- it. With room for 100 jobs, 50 deep partitions have 200 candidates, not 5,000 (120 ms, now 15). Room may be left,
-- because others had fewer jobs than their share, or because of a narrow limit. If a partition that got all of its share
-- could have more then, all jobs are ranked.
--
-- The planner counts an array as ten rows. Left to choose, it joined 5,000 jobs by nested loops. Before PostgreSQL 18 a
-- function in SQL is planned at each call: that took 8 ms, where running it for one job takes 0.2.
create or replace function _allocate(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[], p_now timestamptz
) returns candidate[] language plpgsql stable
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_uses use[] := _uses(p_claimed, p_limiters);
  v_offered record;
  v_ranked record;
begin
  v_offered := _offers(p_policy, p_claimed, v_uses, p_now, false);
  v_ranked := _rank(p_policy, v_uses, v_offered.offers, v_offered.most);
  if v_ranked.wants_more then
    v_offered := _offers(p_policy, p_claimed, v_uses, p_now, true);
    v_ranked := _rank(p_policy, v_uses, v_offered.offers, v_offered.most);
  end if;
  return coalesce(v_ranked.candidates, '{}');
end
$$;
