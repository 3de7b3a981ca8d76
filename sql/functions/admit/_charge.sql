-- Charges what was admitted, and decides for each claimed partition when it is looked at next. Counters, tokens, waiting
-- and decayed admits follow the jobs that Graphile Worker returned, not those that were chosen. A job that replaced a
-- waiting, already admitted one under its key counts once.
--
--   p_forced    tokens stop at zero
--   shadow_denied   how many of the jobs a shadow gate would have held back, by gate; if it is forced, nobody asks gates
--   saturated   a cap over all of the policy is reached, so nothing goes until a job ends. 'workers': only because they
--     have enough to do.
--
-- Its steps pass on one row for each limiter and each partition. Only the first step and _leftovers read one for each job.
-- One plan, made once, serves one job and 5,000 (see _allocate), with hash joins only. So that no step reads a whole
-- table, each table's ids stand beside the join.
create or replace function _charge(
  p_policy policies, p_claimed claimed[],
  p_limiters room_before[],
  p_candidates candidate[],
  p_admissions admission[],
  p_now timestamptz, p_forced boolean, p_tick bigint, out denied jsonb, out saturated text,
  out shadow_denied jsonb
) language plpgsql volatile
set plan_cache_mode = force_generic_plan set enable_nestloop = off set enable_seqscan = off set jit = off as $$
declare
  v_partition_ids uuid[] := array(select c.id from unnest(p_claimed) c);
  v_put record;
  v_shadows shadow_left[] := '{}';
  v_left room_after[];
  v_leftovers leftover[];
  v_lacks lack[];
  v_verdicts verdict[];
begin
  v_put := _put_in_flight(
    p_policy, p_claimed, p_limiters, p_candidates, p_admissions, p_now,
    case when p_forced then '{"forced": true}'::jsonb end);
  if v_put.admitted <> '{}' and exists (
    select from unnest(p_limiters) l where l.shadow_slots is not null or l.shadow_tokens is not null) then
    v_shadows := _shadow_left(
      p_limiters, p_claimed, p_candidates, p_admissions, v_put.kept);
  end if;
  v_left := _rooms_after(
    p_limiters, p_claimed, v_put.admitted, v_shadows, p_now, p_forced, v_put.recounted);
  v_leftovers := _leftovers(
    p_policy, p_claimed, p_candidates, p_admissions, v_put.admitted, p_now);
  v_lacks := _lacks(v_leftovers, v_left, p_now);
  v_verdicts := _verdicts(p_policy, v_leftovers, v_lacks, p_now);
  perform _charge_limiters(
    (p_policy).id, v_partition_ids, v_left, v_lacks, v_verdicts, p_now,
    exists (select from unnest(p_admissions) a where a.waits_elsewhere));
  perform _mark_partitions(p_policy, v_partition_ids, v_verdicts, p_now, p_tick);
  denied := (
    select coalesce(jsonb_object_agg(d.reason, d.n), '{}') from (
      select v.reason, count(*) as n from unnest(v_verdicts) v where v.reason is not null group by v.reason
    ) d);
  shadow_denied := case when p_forced or v_shadows = '{}' then '{}' else (
    select coalesce(jsonb_object_agg(d.gate, d.n), '{}') from (
      select s.gate, sum(s.denied) as n from unnest(v_shadows) s where s.denied > 0 group by s.gate
    ) d) end;
  saturated := (
    select case when bool_and((v.lack).kind = 'ahead') then 'workers' else 'gate' end
    from unnest(v_verdicts) v
    where (v.lack).breadth >= 2 and not (v.lack).by_tokens and v.blocked_on is not null having count(*) > 0);
end
$$;
