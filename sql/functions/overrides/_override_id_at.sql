-- The override that gave a limiter its numbers at `p_at`, which is not after `p_now`. Null: none was in force. One of its key
-- goes before one of its partition's context (`p_context`, see _context_of), and that before one of every key. Of two such,
-- the one that was set last counts. The function _override_now, for passes, has the same order, and the same look by an
-- index for each kind.
create or replace function _override_id_at(
  p_policy_id int, p_gate text, p_scope_key text, p_context jsonb, p_at timestamptz, p_now timestamptz
) returns bigint language plpgsql stable as $$
begin
  return (
    select o.id from (
      select x.*, 1 as rank from _overrides_by(p_policy_id, p_now) x
      where x.gate = p_gate and x.scope_key = p_scope_key
      union all
      select x.*, 2 from unnest(_pairs_of(p_context)) u (pair)
      cross join lateral (
        select y.* from _overrides_by(p_policy_id, p_now) y where y.context_pair = u.pair offset 0
      ) x
      where x.gate = p_gate and p_context @> x.context
      union all
      select x.*, 3 from _overrides_by(p_policy_id, p_now) x
      where x.gate = p_gate and x.scope_key is null and x.context_pair is null
    ) o
    where o.began_at <= p_at and p_at < o.until_at
    order by o.rank, o.id desc limit 1);
end
$$;
