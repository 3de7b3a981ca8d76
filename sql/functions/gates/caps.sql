-- Caps on jobs in flight, and how an adaptive one learns.

-- The slots left under a cap, never negative: a cap that was lowered below the number in flight leaves none.
create or replace function _concurrency_slots(max int, in_flight int)
returns int language sql immutable as $$
  select greatest(max - greatest(in_flight, 0), 0);
$$;

-- cap = max(current, min), never above max. If nothing is in flight, the cap is at least initial_max: the safety valve.
create or replace function _adaptive_cap(
  current_max int, min int, max int, initial_max int, in_flight int
) returns int language sql immutable as $$
  select least(
    greatest(current_max, min, case when in_flight = 0 then initial_max else 0 end),
    coalesce(max, 2147483647)
  );
$$;

-- Feeds one finished job to an adaptive limiter. _adaptive_fold does so for each, in the order they finished.
--
-- Each job moves the lag's EWMA. A failure multiplies the cap by failure_decrease_factor, an EWMA over target by
-- overload_decrease_factor; otherwise the cap grows by one. It grows only while the cap was binding (in flight at least
-- half of it).
--
-- It shrinks at most once per round: jobs admitted before the last decrease saw the old cap, and say nothing about the new
-- one. (A decrease ahead of now comes from a wrong clock, and ends no round.)
--
-- A lag that is unknown or impossible leaves the average as it is. A tiny average becomes 0, because PostgreSQL raises an
-- error if a product underflows. After 1,075 lags of 0 no release succeeded any more.
create or replace function _adaptive_observe(
  limiter limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) returns limiters language plpgsql immutable as $$
declare
  v_current int := coalesce(limiter.current_max, (limiter.numbers).initial_max);
  v_new_round boolean := (limiter.decreased_at < admitted_at or limiter.decreased_at > now + interval '1 second') is not false;
  v_factor float8;
  v_average float8 := case when limiter.lag_ewma_ms >= 1e-9 then least(limiter.lag_ewma_ms, 1e15) else 0 end;
  -- NaN is above all numbers here
  v_lag float8 := case when lag_ms < 1e-9 and lag_ms >= 0 then 0 when lag_ms >= 0 and lag_ms < 'Infinity'
    then least(lag_ms, 1e15) else v_average end;
begin
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
  limiter.current_max := least(greatest(v_current, (limiter.numbers).min), coalesce((limiter.numbers).max, 2147483647));
  return limiter;
end
$$;

-- One step of _adaptive_fold: an _adaptive_observe of the limiter as the jobs before left it.
create or replace function _adaptive_fold_step(
  state limiters, limiter limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) returns limiters language sql immutable as $$
  select _adaptive_observe(
    coalesce(state, limiter), lag_ms, succeeded, admitted_at, was_in_flight, now);
$$;

-- Folds finished jobs into an adaptive limiter, in the order they finished: one _adaptive_observe for each.
create or replace aggregate _adaptive_fold(
  limiter limiters,
  lag_ms float8, succeeded boolean, admitted_at timestamptz, was_in_flight int, now timestamptz
) (
  sfunc = _adaptive_fold_step,
  stype = limiters
);
