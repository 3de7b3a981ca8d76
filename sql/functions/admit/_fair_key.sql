-- Virtual time as one number comparable across time: waiters are woken in its order.
create or replace function :DISPATCH_POLICY_SCHEMA._fair_key(
  decayed float8, weight float8, half_life float8, now timestamptz
) returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when half_life is null then extract(epoch from now)::float8
    else ln(greatest(decayed, 1e-9) / weight) + extract(epoch from now)::float8 * ln(2) / half_life end;
$$;
