-- Whether a definition gives a limiter other numbers than it has.
create or replace function :DISPATCH_POLICY_SCHEMA._numbers_differ(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, numbers jsonb
) returns boolean language sql immutable as $$
  -- a bare expression, so that it is inlined: as a query it took 20 us for each limiter of each arrival
  select (limiter.kind, limiter.breadth, limiter.position,
      limiter.rate, limiter.per, limiter.burst, limiter.sliding, limiter.smooth, limiter.max, limiter.initial_max,
      limiter.target_lag_ms, limiter.min, limiter.ewma_alpha, limiter.failure_decrease_factor, limiter.overload_decrease_factor)
    is distinct from (
      numbers ->> 'kind', :DISPATCH_POLICY_SCHEMA._breadth(numbers ->> 'scope'), (numbers ->> 'position')::smallint,
      (numbers ->> 'rate')::float8, (numbers ->> 'per')::float8, (numbers ->> 'burst')::float8,
      coalesce((numbers ->> 'sliding')::boolean, false), coalesce((numbers ->> 'smooth')::boolean, false),
      (numbers ->> 'max')::int, (numbers ->> 'initial_max')::int, (numbers ->> 'target_lag_ms')::float8,
      (numbers ->> 'min')::int, (numbers ->> 'ewma_alpha')::float8,
      (numbers ->> 'failure_decrease_factor')::float8, (numbers ->> 'overload_decrease_factor')::float8);
$$;
