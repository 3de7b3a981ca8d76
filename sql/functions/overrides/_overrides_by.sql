-- The overrides of a policy that a tick at `p_now` uses: those in force, and those that have ended. An override that was
-- set for at once is in force from then on, even by a clock that is behind.
create or replace function _overrides_by(p_policy_id int, p_now timestamptz)
returns table (
  id bigint, gate text, scope_key text, set jsonb, began_at timestamptz, until_at timestamptz, context jsonb,
  context_pair jsonb
)
language sql stable as $$
  select o.id, o.gate, o.scope_key, o.set,
    case when isfinite(o.from_at) or o.set_at > p_now then o.from_at else o.set_at end, o.until_at,
    o.context, o.context_pair
  from overrides o
  where o.policy_id = p_policy_id and o.from_at <= p_now and not (o.taken_back and p_now < o.until_at);
$$;
