-- The second half of a pass. It admits the chosen jobs, and charges those that Graphile Worker took. The caller has
-- locked the partitions and limiters.
--
--   p_began   when the pass began; null: it is none, but an operator's admission (`p_forced`) or a release
create or replace function _admit_claimed(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[], p_candidates candidate[],
  p_now timestamptz, p_forced boolean, p_began timestamptz,
  out admitted int, out denied jsonb, out quarantined int, out saturated text
) language plpgsql as $$
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
  v_candidates candidate[] := p_candidates;
  v_added record;
  v_pasts past[];
  v_places place[];
  v_charged record;
begin
  quarantined := 0;
  if (p_policy).history_kept_for is not null then
    v_pasts := _pasts_of(array(
      select c.staged_id from unnest(p_candidates) c where c.chosen));
  end if;
  if (p_policy).per_worker then
    v_places := _places_of(p_candidates);
  end if;
  if exists (select from unnest(v_candidates) c where c.chosen) then
    if p_began is null and not p_forced then
      -- a release leaves all of them to the next pass if one cannot go
      select _add_admitted(v_candidates, p_now) as admissions, '{}'::bigint[] as quarantined into v_added;
    else
      v_added := _add_what_passes(v_candidates, p_now);
    end if;
    quarantined := cardinality(v_added.quarantined);
    if quarantined > 0 then
      v_candidates := array(select c from unnest(v_candidates) c where c.staged_id <> all (v_added.quarantined));
    end if;
  else
    select '{}'::admission[] as admissions into v_added;
  end if;
  if exists (select from groups) then
    perform _admit_in_groups(v_added.admissions);
  end if;
  admitted := (select count(*) from unnest(v_added.admissions) a where a.admitted);
  v_charged := _charge(
    p_policy, p_claimed, p_limiters, v_candidates, v_added.admissions, p_now, p_forced,
    nextval('ticks'));
  denied := v_charged.denied; saturated := v_charged.saturated;
  if v_places <> '{}' then
    perform _keep_places(v_places, v_added.admissions);
  end if;
  perform _count_pass(
    (p_policy).id, v_candidates, v_added.admissions, admitted, denied, v_charged.shadow_denied, quarantined,
    case when (p_policy).load_kept_for is null or admitted = 0 then '{}'
      else _load_of_pass((p_policy).id, v_candidates, v_added.admissions, p_now) end,
    p_now, p_began);
  if (p_policy).history_kept_for is not null then
    perform _record_reasons((p_policy).id, v_partition_ids, p_now, p_began is not null);
    perform _record_admissions(v_pasts, v_added.admissions, p_now);
  end if;
  if (p_policy).max_pending_in_all is not null then
    perform _count_pending((p_policy).name,
      -(select count(*)::int from unnest(v_added.admissions) a where a.staged_id is not null));
  end if;
  -- The danger: nobody may wait for a full cap any more, so the end of a job wakes nobody. Jobs that are due later, or were
  -- postponed, would be late. The cure: loops look again as if the cap had room.
  if ((p_policy).when_busy = 'skip' and _skip_denied((p_policy).name, v_partition_ids))
    or ((p_policy).when_busy = 'delay' and _delay_denied(p_policy, v_partition_ids, p_now)) then
    saturated := null;
  end if;
end
$$;
