-- Records who used an operator's verb, on what, why, and how much it changed.
create or replace function _audit(
  p_verb text, p_policy text, p_partition text, p_gate text, p_scope_key text, p_detail jsonb, p_reason text, p_by text,
  p_matched int, p_changed int
) returns void language sql volatile as $$
  insert into audit (
    verb, policy, partition, gate, scope_key, detail, reason, by, matched, changed)
  values (p_verb, p_policy, p_partition, p_gate, p_scope_key, coalesce(p_detail, '{}'), p_reason,
    coalesce(p_by, session_user), p_matched, p_changed);
$$;
