-- Jobs that say what they cost pay or get back the difference.

-- Charges or returns the difference between what jobs have paid and what their runs cost, at the throttles of their
-- partitions. These give tokens to the partition's next jobs. A gate that the partition does not have is left out.
--
-- The danger: a throttle returns what it has never got, and more goes than it allows. The cure: in three cases a job is
-- charged, and gets nothing back. It was admitted past its gates. Or its partition has got other limits since. Or the gate is
-- a shadow, which charges only jobs that it has room for.
--
-- Another danger: a job that is left comes again with the next flush, and would be settled twice. The cure: its in-flight
-- row, which is locked, then says what it has paid by now.
--
--   p_limiter_ids   the limiters that the caller has locked
--   left_ids   these come again with the next flush: another transaction has the row locked, or the partition has other
--     throttles than the caller has locked
--   woke       tokens came back that somebody waits for
create or replace function _settle(
  p_jobs finished_job[], p_limiter_ids bigint[], p_now timestamptz,
  out left_ids bigint[], out woke boolean
) language plpgsql volatile as $$   -- planned as _release
declare
  v_ids bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(array(select j.job from unnest(p_jobs) j where j.settled is not null)));
  v_locked bigint[] := array(
    select f.job_id from in_flight_jobs f
    where f.job_id = any(v_ids) order by f.job_id for update skip locked);
  v_settlements settlement[];
  v_throttle record;
begin
  v_settlements := array(
    -- a job may have several ends: the last one counts
    select distinct on (f.job_id, l.id) row(
        f.job_id, l.policy_id, l.id,
        greatest(c.cost - c.paid, case
          when f.paid ? 'forced' or (l.numbers).shadow is true or q.limits_since > c.since then 0 end),
        c.since,
        -- what it has paid by now: a cost for all throttles replaces what was said of single ones before
        coalesce(f.paid, '{}') || j.settled || jsonb_build_object('gates',
          case when j.settled ? 'cost' then '{}' else coalesce(f.paid -> 'gates', '{}') end
            || coalesce(j.settled -> 'gates', '{}')))::settlement
    from unnest(p_jobs) j
    join in_flight_jobs f on f.job_id = j.job and f.job_id = any(v_locked)
      and _is_end_of(j.admission, j.attempt, f.admission, f.attempt)
    join partitions q on q.id = f.partition_id
    cross join lateral unnest(q.limiter_ids) u (id)
    join limiters l on l.id = u.id and l.by_tokens
    cross join lateral (
      select _cost_at(j.settled, l.gate) as cost,
        coalesce(_cost_at(f.paid, l.gate), f.cost) as paid,
        coalesce((f.paid ->> 'at')::timestamptz, f.admitted_at) as since
    ) c
    where j.settled is not null and c.cost is not null
    order by f.job_id, l.id, j.ordinality desc);
  left_ids := array(
    select unnest(v_ids) except select unnest(v_locked)
    union select s.job_id from unnest(v_settlements) s where s.limiter_id <> all (p_limiter_ids));
  v_settlements := array(select s from unnest(v_settlements) s where s.job_id <> all (left_ids));
  woke := false;
  for v_throttle in
    select s.policy_id, s.limiter_id, array_agg(s order by s.job_id) as settlements
    from unnest(v_settlements) s where s.difference <> 0 group by s.policy_id, s.limiter_id order by s.limiter_id
  loop
    woke := _settle_throttle(
      v_throttle.policy_id, v_throttle.limiter_id, v_throttle.settlements, p_now) or woke;
  end loop;
  perform _set_paid(array_agg(n.job_id), array_agg(n.paid))
  from (select distinct on (s.job_id) s.job_id, s.paid from unnest(v_settlements) s) n;
end
$$;

-- Locks the limiters of a release that settles jobs. Their throttles are among them.
--
-- The danger: a `take` in an open transaction has a throttle locked for long. Whoever needs one of the other limiters would
-- wait behind this release. The cure: it waits for less time than a pass does (_lock_limiters_soon).
create or replace function _lock_to_settle(p_limiter_ids bigint[]) returns void
language plpgsql volatile set lock_timeout = '50ms' as $$   -- planned as _release
begin
  perform from limiters l
  where l.id = any(p_limiter_ids) order by l.id for no key update;
end
$$;

-- The throttles whose tokens these ends settle, so that a release locks them with the others. _settle checks again which
-- they are, because the partition may have got others meanwhile.
create or replace function _throttles_to_settle(
  p_jobs finished_job[]
) returns bigint[] language plpgsql stable as $$   -- planned as _release
begin
  return array(
    select distinct l.id
    from unnest(p_jobs) j
    join in_flight_jobs f on f.job_id = j.job
    join partitions q on q.id = f.partition_id
    cross join lateral unnest(q.limiter_ids) u (id)
    join limiters l on l.id = u.id
    where j.settled is not null and l.by_tokens and _cost_at(j.settled, l.gate) is not null);
end
$$;
