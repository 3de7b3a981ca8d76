-- Appends what a pass did: how many jobs it admitted, and how long each of them had waited since it was due. Also how many
-- partitions kept due jobs, by reason, and how many jobs went that a shadow gate would have held back.
--
--   p_load    what it did in each partition, if the policy records its load
--   p_began   when the pass began; null: it was no pass, but an operator who admitted jobs past the gates
create or replace function _count_pass(
  p_policy_id int, p_candidates candidate[],
  p_admissions admission[], p_admitted int, p_denied jsonb,
  p_shadow_denied jsonb, p_quarantined int,
  p_load load_change[], p_now timestamptz, p_began timestamptz
) returns void language plpgsql volatile as $$
declare
  v_now_s float8 := date_part('epoch', p_now);
begin
  insert into activity (
    policy_id, at, passes, pass_seconds, admitted, denied, shadow_denied, quarantined, load, waits)
  select p_policy_id, p_now, case when p_began is null then 0 else 1 end,
    coalesce(greatest(extract(epoch from clock_timestamp() - p_began), 0), 0), p_admitted, p_denied,
    p_shadow_denied, p_quarantined, p_load,
    case when p_admitted > 0 then array(
      -- Not "extract", which is numeric and takes three times as long. Not of the difference, which fails for '-infinity'.
      select _seconds(
        1000 * greatest(v_now_s - date_part('epoch', c.run_at), 0))
      from unnest(p_candidates) c
      where c.chosen and (c.staged_id in (select a.staged_id from unnest(p_admissions) a where a.admitted)) is true)
    else '{}' end;
end
$$;
