-- The numbers that an override gave a limiter at `p_at`, which is not after `p_now`, by its partition's context. Null: none
-- was in force.
create or replace function _override_at(
  limiter limiters, p_context jsonb, p_at timestamptz, p_now timestamptz
) returns jsonb language sql stable as $$
  select o.set from overrides o
  where o.id = _override_id_at(
    limiter.policy_id, limiter.gate, limiter.scope_key, p_context, p_at, p_now);
$$;
