-- The override that gave a limiter its numbers at `p_at`, which is not after `p_now`. Null: none was in force. One of its key
-- goes before one of its partition's context (`p_context`, see _context_of), and that before one of every key. Of two such,
-- the one that was set last counts. The function _override_now, for passes, has the same order.
create or replace function :DISPATCH_POLICY_SCHEMA._override_id_at(
  p_policy_id int, p_gate text, p_scope_key text, p_context jsonb, p_at timestamptz, p_now timestamptz
) returns bigint language sql stable as $$
  select o.id from :DISPATCH_POLICY_SCHEMA._overrides_by(p_policy_id, p_now) o
  where o.gate = p_gate and (o.scope_key = p_scope_key or o.scope_key is null)
    and (o.context is null or p_context @> o.context)
    and o.began_at <= p_at and p_at < o.until_at
  order by o.scope_key nulls last, o.context is null, o.id desc limit 1;
$$;
