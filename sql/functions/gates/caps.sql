-- Caps on jobs in flight: how an adaptive one learns, and how one is lowered for a moment because a job came back.

-- Feeds one finished job to an adaptive limiter: to `state`, as the jobs before left it, or to `limiter` if it is the first.
--
-- Each job moves the lag's EWMA. A failure multiplies the cap by failure_decrease_factor, an EWMA over target by
-- overload_decrease_factor; otherwise the cap grows by one, if it was binding (in flight at least half of it). It shrinks at most
-- once per round: jobs admitted before the last decrease saw the old cap, and say nothing about the new one. (A decrease ahead of
-- now comes from a wrong clock, and ends no round.)
--
-- A lag that is unknown or impossible leaves the average as it is. A tiny average becomes 0, because PostgreSQL raises an
-- error if a product underflows.
create or replace function _adaptive_observe(
  state limiters, limiter limiters, lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int,
  now timestamptz
) returns limiters language plpgsql immutable as $$
declare
  v_current int;
  v_new_round boolean;
  v_factor float8;
  v_average float8;
  v_lag float8;
begin
  limiter := coalesce(state, limiter);
  v_current := coalesce(limiter.current_max, (limiter.numbers).initial_max);
  v_new_round := (limiter.decreased_at < admitted_at or limiter.decreased_at > now + interval '1 second') is not false;
  v_average := case when limiter.lag_ewma_ms >= 1e-9 then least(limiter.lag_ewma_ms, 1e15) else 0 end;
  -- NaN is above all numbers here
  v_lag := case when lag_ms < 1e-9 and lag_ms >= 0 then 0 when lag_ms >= 0 and lag_ms < 'Infinity' then least(lag_ms, 1e15)
    else v_average end;
  limiter.lag_ewma_ms := (1 - (limiter.numbers).ewma_alpha) * v_average + (limiter.numbers).ewma_alpha * v_lag;
  limiter.lag_ewma_ms := case when limiter.lag_ewma_ms < 1e-9 then 0 else limiter.lag_ewma_ms end;
  v_factor := case when not succeeded then (limiter.numbers).failure_decrease_factor
    when limiter.lag_ewma_ms > (limiter.numbers).target_lag_ms then (limiter.numbers).overload_decrease_factor end;
  if v_factor is not null then
    if v_new_round then
      v_current := floor(v_current * v_factor)::int;
      limiter.decreased_at := now;
    end if;
  elsif was_in_flight * 2 >= v_current then
    v_current := v_current + 1;
  end if;
  limiter.current_max :=
    least(greatest(v_current, (limiter.numbers).min), coalesce((limiter.numbers).max, 2147483647));
  return limiter;
end
$$;

-- Folds finished jobs into an adaptive limiter, in the order they finished: one _adaptive_observe for each.
create or replace aggregate _adaptive_fold(
  limiter limiters, lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) (
  sfunc = _adaptive_observe,
  stype = limiters
);

-- How many jobs may be in flight for now, because a worker pool has requeued one. Null: none has, or the clock was ahead
-- then.
--
-- The danger: the job would go to the same full pool again at once, and again. The cure: until `local_until` no more may be
-- in flight than were after it came back. Then one more may, and with each `local_delay` twice as many more. So a pool with
-- room gets its jobs soon, however many they are, and a full one requeues few.
create or replace function _local_cap(limiter limiters, now timestamptz) returns bigint language sql stable as $$
  select case when limiter.local_until <= now + interval '2 seconds' then limiter.local_cap::bigint + case
    when now < limiter.local_until then 0
    else power(2, floor(least(extract(epoch from now - limiter.local_until)::float8 / limiter.local_delay, 31))) end::bigint end;
$$;

-- When the cap of _local_cap rises next.
create or replace function _local_rises_at(limiter limiters, now timestamptz) returns timestamptz language sql stable as $$
  select case when now < limiter.local_until then limiter.local_until
    -- a microsecond later than the sum, which is rounded: else passes would look just before it rises
    else limiter.local_until + make_interval(secs => limiter.local_delay * (1
      + floor(least(extract(epoch from now - limiter.local_until)::float8 / limiter.local_delay, 1e9))) + 0.000001) end;
$$;

-- How many slots of a limiter a job takes that names these: it names a limiter once for each. Where no gate of a policy has a cost,
-- nobody asks.
create or replace function _takes(limiter_ids bigint[], id bigint) returns int language sql immutable as $$
  select cardinality(array_positions(limiter_ids, id));
$$;

-- Whether a cap has room for a job at all, however few are in flight. Null: it does not count slots.
create or replace function _fits(limiter_ids bigint[], id bigint, cap int) returns boolean language sql immutable as $$
  select cap is null or _takes(limiter_ids, id) <= cap;
$$;

-- How many jobs that take so many slots a cap may let go, if so many are free. Where none fits, it is one: that one keeps others
-- from the slots, until there are enough for it. Not if there never are, and not at a limiter that a partition has alone (its
-- breadth is 0): then it stands in nobody's way. A cap that does not count has room without end.
create or replace function _jobs_in_slots(free int, takes int, cap int, breadth smallint) returns int
language sql immutable as $$
  select case when free = 2147483647 then free when takes > cap then 0 when free >= takes or breadth = 0 then greatest(free, 0) / takes
    else least(greatest(free, 0), 1) end;
$$;
