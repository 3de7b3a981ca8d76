-- What a bucket holds now, by the arithmetic in _throttle_capacity.
create or replace function :DISPATCH_POLICY_SCHEMA._throttle_tokens(
  tokens float8, refilled_at timestamptz, rate float8, per float8, burst float8, smooth boolean, now timestamptz
) returns float8 language sql immutable as $$
  select least(
    greatest(coalesce(burst, rate), 1)
      + case when smooth and burst = 1 then least(greatest(rate, 0) / per * 0.25, 0.9) else 0 end,
    tokens + greatest(extract(epoch from now - refilled_at)::float8, 0) * greatest(rate, 0) / per
  );
$$;
