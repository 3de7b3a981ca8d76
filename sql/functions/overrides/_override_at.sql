-- The numbers that an override gave a limiter at `p_at`, which is not after `p_now`, by its partition's context. Null: none
-- was in force.
create or replace function :DISPATCH_POLICY_SCHEMA._override_at(
  limiter :DISPATCH_POLICY_SCHEMA._private_limiters, p_context jsonb, p_at timestamptz, p_now timestamptz
) returns jsonb language sql stable as $$
  select o.set from :DISPATCH_POLICY_SCHEMA._private_overrides o
  where o.id = :DISPATCH_POLICY_SCHEMA._override_id_at(
    limiter.policy_id, limiter.gate, limiter.scope_key, p_context, p_at, p_now);
$$;
