-- Admits due jobs of these partitions. The caller has locked them and all of their limiters (`p_locked`), in earlier
-- statements.
--
--   p_began     when the pass began; null: it is none
--   claimed     with a breaker, how many partitions count as claimed: those in looked_at; null: without one, all do
--   looked_at   the partitions from which jobs were chosen: without those that _expire leaves out, those that wait in strict
--     order and, with a breaker, those whose failures are not all routed
create or replace function _admit_locked(
  p_policy policies, p_claimed claimed[],
  p_locked limiters[], p_now timestamptz, p_bounded boolean, p_began timestamptz,
  out claimed int, out looked_at uuid[], out admitted int, out denied jsonb, out quarantined int, out saturated text
) language plpgsql as $$
declare
  v_claimed claimed[] := p_claimed;
  v_limiters room_before[];
  v_candidates candidate[];
  v_stopped record;
  v_passed record;
begin
  admitted := 0; denied := '{}'; quarantined := 0;
  looked_at := _expire((p_policy).name, array(select c.id from unnest(p_claimed) c), p_now);
  if (p_policy).job_order = 'strict' and (p_policy).enabled then
    looked_at := _wait_in_order(p_policy, looked_at, p_now, p_began is not null);
  end if;
  if looked_at = '{}' then
    return;
  end if;
  v_limiters := _limiters_of_pass((p_policy).id, p_locked, p_now, p_bounded);
  if (p_policy).breaker_failures is not null then
    looked_at := _known_outcomes(p_policy, looked_at);
    claimed := cardinality(looked_at);
  end if;
  if cardinality(looked_at) < cardinality(p_claimed) then
    v_claimed := array(select c from unnest(p_claimed) c where (c.id in (select unnest(looked_at))) is true);
  end if;
  v_candidates := case when (p_policy).enabled
    then _allocate(p_policy, v_claimed, v_limiters, p_now)
    else array(select c from _first_due(looked_at, (p_policy).batch_size, null) c) end;
  if (p_policy).enabled and p_bounded then
    v_stopped := _stop_at_long_jobs(p_policy, p_now, v_candidates, v_limiters);
    v_candidates := v_stopped.candidates;
    v_limiters := v_stopped.limiters;
  end if;
  v_passed := _admit_claimed(
    p_policy, v_claimed, v_limiters, v_candidates, p_now, not (p_policy).enabled, p_began);
  admitted := v_passed.admitted; denied := v_passed.denied;
  quarantined := v_passed.quarantined; saturated := v_passed.saturated;
end
$$;
