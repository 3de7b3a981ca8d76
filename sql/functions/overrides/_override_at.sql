-- The numbers that an override gave a limiter at `p_at`, which is not after `p_now`. Null: none was in force. The
-- function _limiters_now looks all of its limiters up at once, in the same order.
create or replace function :DISPATCH_POLICY_SCHEMA._override_at(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_at timestamptz, p_now timestamptz
) returns jsonb language sql stable as $$
  select o.set from :DISPATCH_POLICY_SCHEMA._overrides_by(limiter.policy_id, p_now) o
  where o.gate = limiter.gate and (o.scope_key = limiter.scope_key or o.scope_key is null)
    and o.began_at <= p_at and p_at < o.until_at
  order by o.scope_key nulls last, o.id desc limit 1;
$$;
