-- An exponentially decayed count, of jobs or of seconds. A mark ahead of now counts as no age. The age is clamped, and
-- what is nearly nothing is nothing: PostgreSQL raises an error where a product underflows, which failed every tick from
-- the second long idle time of a partition on. (What is left of 1e-9 after the greatest age can still be divided by a weight.)
create or replace function :DISPATCH_POLICY_SCHEMA._decayed(
  admits float8, marked_at timestamptz, half_life float8, now timestamptz
) returns float8 language sql immutable as $$
  select case when half_life is null or admits < 1e-9 then 0 else
    admits * exp(greatest(least(-extract(epoch from now - marked_at)::float8 * ln(2) / half_life, 0), -500))
  end;
$$;

-- Virtual time as one number comparable across time: waiters are woken in its order.
create or replace function :DISPATCH_POLICY_SCHEMA._fair_key(
  decayed float8, weight float8, half_life float8, now timestamptz
) returns float8 language sql stable as $$   -- immutable it would not be inlined
  select case when half_life is null then extract(epoch from now)::float8
    else ln(greatest(decayed, 1e-9) / weight) + extract(epoch from now)::float8 * ln(2) / half_life end;
$$;

-- What a job counts for where fairness is by work: the seconds that those of its partition ran lately; a second where none
-- has ended yet. Null where each job counts for one.
create or replace function :DISPATCH_POLICY_SCHEMA._work_of(
  policy :DISPATCH_POLICY_SCHEMA._private_policies, mean_work float8
) returns float8 language sql immutable as $$
  select case when (policy).fair_by_work then greatest(coalesce(mean_work, 1), 0.001) end;
$$;
